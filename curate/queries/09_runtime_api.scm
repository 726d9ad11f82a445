; The CUDA runtime API, an allowlist by family: memory, streams, events, errors, graphs, device management; its types and enumerators.
; What torch wraps around it (getCurrentCUDAStream, C10_CUDA_CHECK) is neutral. Launches and occupancy are category 8.
;
; example: void h(float* d, float* s, size_t n) { cudaMemcpy(d, s, n, cudaMemcpyHostToDevice); }
; marks: cudaMemcpy(d, s, n, cudaMemcpyHostToDevice)
; example: void h() { CHECK(cudaStreamCreate(&stream)); cudaError_t e = cudaGetLastError(); }
; marks: cudaStreamCreate(&stream) ~ cudaError_t ~ cudaGetLastError()
; example: bool h(int e) { return e == cudaSuccess; }
; marks: cudaSuccess
; example: void h() { cudaKernelHelper(3); }
; marks nothing

(call_expression
  function: [(identifier) @_name (template_function name: (identifier) @_name)]
  (#match? @_name
    "^(cuda(Malloc|Free|Memcpy|Memset|HostAlloc|HostRegister|HostUnregister|HostGet|MemGetInfo|MemAdvise|MemPrefetch|MemRange|MemPool|Mem[CEDIM]|PointerGetAttributes|GetSymbol|Array|ExtentMake|Pitched|CreateTextureObject|DestroyTextureObject|CreateSurfaceObject|DestroySurfaceObject|CreateChannelDesc|GetChannelDesc|BindTexture|UnbindTexture|Import|Export|DestroyExternal|External|Ipc|Stream|Event|GetLastError|PeekAtLastError|GetErrorString|GetErrorName|Graph|UserObject|ThreadExchangeStreamCaptureMode|DeviceSynchronize|DeviceReset|DeviceGet|DeviceSet|DeviceCanAccessPeer|DeviceEnablePeerAccess|DeviceDisablePeerAccess|DeviceFlush|SetDevice|GetDevice|ChooseDevice|InitDevice|CtxReset|DriverGetVersion|RuntimeGetVersion|Profiler|ThreadSynchronize|ThreadExit|Kernel(SetAttribute|GetName)|GetKernel|Library|GetFuncBySymbol|FuncGetName|FuncGetParamInfo)|make_cuda(Extent|Pos|PitchedPtr)|cu(Init|DeviceGet|Ctx|Mem|Stream|Event|Module|Link|Graph|GetError|TensorMap|Pointer|Array|Tex|Library|Kernel)[A-Z]?)")) @runtime_api

((identifier) @runtime_api
  (#match? @runtime_api
    "^(cudaSuccess|cuda(Error|Memcpy|Mem|Stream|Event|Host|Device|DevAttr|Limit|Graph|Array|Texture|AddressMode|FilterMode|ReadMode|Channel|Resource|CpuDevice|InvalidDevice|Access)[A-Z]\\w*|CUDA_SUCCESS|CU_\\w+)$"))

((type_identifier) @runtime_api
  (#match? @runtime_api
    "^(cuda(Error|Stream|Event|Graph|GraphExec|GraphNode|MemPool|Array|MipmappedArray|UserObject|TextureObject|SurfaceObject|HostFn|StreamCallback|IpcMemHandle|IpcEventHandle|ExternalMemory|ExternalSemaphore|Function|Kernel|Library)_t|cuda(Error|DeviceProp|PointerAttributes|FuncAttributes|ChannelFormatDesc|ResourceDesc|TextureDesc|Extent|Pos|PitchedPtr|Memcpy3DParms|MemcpyKind|MemLocation|DeviceAttr|Limit|StreamCaptureMode|StreamCaptureStatus|MemPoolProps|KernelNodeParams|GraphInstantiateFlags|AccessPolicyWindow|StreamAttrValue)|CU(device|context|stream|event|module|function|deviceptr|result|tensorMap|array|graph|linkState))$"))
