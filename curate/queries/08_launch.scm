; Launch and launch configuration: `<<<...>>>` with what it holds, `dim3`, cudaLaunchKernel and its kin, occupancy, function attributes.
; The kernel's name and its arguments belong to the location (launch), not to this category.
;
; example: void h(float* a, int n) { k<<<(n + 255) / 256, 256>>>(a, n); }
; marks: <<<(n + 255) / 256, 256>>>
; example: void h() { dim3 grid(4, 2); }
; marks: dim3 grid(4, 2);
; example: void h(int* b) { cudaOccupancyMaxActiveBlocksPerMultiprocessor(b, k, 128, 0); }
; marks: cudaOccupancyMaxActiveBlocksPerMultiprocessor(b, k, 128, 0)
; example: void h(int a) { f(a << 3, a >> 3); }
; marks nothing

(kernel_call_syntax) @launch

(declaration
  type: (type_identifier) @_type
  (#eq? @_type "dim3")) @launch

(declaration
  type: (type_identifier) @_type
  (#match? @_type "^(cudaLaunchConfig_t|cudaLaunchAttribute|cudaLaunchParams|CUlaunchConfig|CUlaunchAttribute)$")) @launch

((type_identifier) @launch
  (#eq? @launch "dim3"))

(call_expression
  function: (identifier) @_name
  (#any-of? @_name
    "dim3"
    "cudaLaunchKernel" "cudaLaunchCooperativeKernel" "cudaLaunchCooperativeKernelMultiDevice" "cudaLaunchKernelEx" "cudaLaunchKernelExC"
    "cudaLaunchHostFunc" "cuLaunchKernel" "cuLaunchKernelEx" "cuLaunchCooperativeKernel" "cudaConfigureCall" "cudaLaunch"
    "cudaFuncSetAttribute" "cudaFuncSetCacheConfig" "cudaFuncSetSharedMemConfig" "cudaFuncGetAttributes" "cuFuncSetAttribute"
    "cudaGetParameterBufferV2" "cudaLaunchDeviceV2" "cudaGridDependencySynchronize" "cudaTriggerProgrammaticLaunchCompletion"
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor" "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags"
    "cudaOccupancyMaxPotentialBlockSize" "cudaOccupancyMaxPotentialBlockSizeWithFlags" "cudaOccupancyMaxPotentialBlockSizeVariableSMem"
    "cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags" "cudaOccupancyAvailableDynamicSMemPerBlock"
    "cudaOccupancyMaxActiveClusters" "cudaOccupancyMaxPotentialClusterSize" "cuOccupancyMaxActiveBlocksPerMultiprocessor")) @launch

(call_expression
  function: (template_function
    name: (identifier) @_name)
  (#match? @_name "^cuda(Occupancy|LaunchKernelEx|LaunchKernel|FuncSet|FuncGet)")) @launch

((identifier) @launch
  (#match? @launch "^cuda(FuncAttribute|FuncCache|SharedMemBankSize|OccupancyD|LaunchAttribute|CooperativeLaunch)[A-Za-z]+$"))
