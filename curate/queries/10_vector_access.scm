; Vectorised and cached access: the built-in vector types and their constructors, casts to a pointer to one, loads and stores with a cache
; hint, textures, the address spaces (a block's shared memory seen from its cluster among them), and the macros that usually wrap a cast.
;
; example: __global__ void k(const float* a, float* b) { float4 v = __ldg(p); b[0] = v.x; }
; marks: float4 ~ __ldg(p)
; example: __device__ void f(float* a) { auto p = reinterpret_cast<float4*>(a); }
; marks: reinterpret_cast<float4*>(a)
; example: __device__ void f(float* a) { auto p = *(const float2*)(&a[2]); }
; marks: (const float2*)(&a[2])
; example: __device__ void f(float* a) { auto v = make_float4(0, 1, 2, 3); __stcs(a, 1.f); }
; marks: make_float4(0, 1, 2, 3) ~ __stcs(a, 1.f)
; example: __global__ void k(int n) { f(sizeof(float4)); }
; marks: float4
; example: __device__ void f(float* a) { FLOAT4(a[0]) = FETCH_FLOAT4(a[4]); }
; marks: FLOAT4(a[0]) ~ FETCH_FLOAT4(a[4])
; example: __device__ void f(cg::cluster_group c, int* s) { int* far = c.map_shared_rank(s, 1); }
; marks: c.map_shared_rank(s, 1)
; example: __device__ void f(void* a) { auto p = reinterpret_cast<float*>(a); }
; marks nothing

((type_identifier) @vector_access
  (#match? @vector_access
    "^((char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double)[1-4](_16a|_32a)?|(__)?half2|(__)?nv_bfloat162|__nv_fp8x[24]_e\\w+|__nv_fp4x[24]_e\\w+|float2_t|float4_t)$"))

; as the argument of sizeof, or of a macro, a type is parsed as a variable; a list, since every argument is compared with it
([
  (sizeof_expression (parenthesized_expression (identifier) @vector_access))
  (argument_list (identifier) @vector_access)
]
  (#any-of? @vector_access
    "char1" "char2" "char3" "char4" "uchar1" "uchar2" "uchar3" "uchar4" "short1" "short2" "short3" "short4" "ushort1" "ushort2"
    "ushort3" "ushort4" "int1" "int2" "int3" "int4" "uint1" "uint2" "uint3" "uint4" "long1" "long2" "long3" "long4" "ulong1"
    "ulong2" "ulong3" "ulong4" "longlong1" "longlong2" "longlong3" "longlong4" "ulonglong1" "ulonglong2" "ulonglong3"
    "ulonglong4" "float1" "float2" "float3" "float4" "double1" "double2" "double3" "double4" "half2" "__half2" "nv_bfloat162"
    "__nv_bfloat162"))

(call_expression
  function: (identifier) @_name
  (#match? @_name
    "^(make_((char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double)[1-4](_16a|_32a)?|half2|bfloat162)|__ld(g|ca|cg|cs|lu|cv)|__st(wb|cg|cs|wt)|__prefetch_\\w+|__builtin_assume_aligned|tex(1D|2D|3D)\\w*|texCubemap\\w*|surf(1D|2D|3D)\\w*|__isGlobal|__isShared|__cvta_\\w+|(FETCH_|CONST_)?(FLOAT|INT|HALF|BFLOAT)[24]|LDST(32|64|128)BITS)$")) @vector_access

(call_expression
  function: (template_function
    name: (identifier) @_name)
  (#match? @_name "^(__ld(g|ca|cg|cs|lu|cv)|__st(wb|cg|cs|wt)|tex(1D|2D|3D)\\w*|surf(1D|2D|3D)\\w*)$")) @vector_access

(call_expression
  function: (field_expression
    field: [(field_identifier) @_name (template_method name: (field_identifier) @_name)])
  (#eq? @_name "map_shared_rank")) @vector_access.device

(call_expression
  function: (template_function
    name: (identifier) @_cast
    arguments: (template_argument_list
      (type_descriptor
        type: [(type_identifier) (qualified_identifier) (template_type)] @_type
        declarator: [(abstract_pointer_declarator) (abstract_reference_declarator)])))
  (#eq? @_cast "reinterpret_cast")
  (#match? @_type
    "^((char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double)[1-4](_\\w+)?|(__)?half2|(__)?nv_bfloat162|\\w*[vV]ec(tor)?\\w*(<.*)?|\\w*[vV]ec(_t|T|4|2|8)?|\\w*Vec\\w*::\\w+|(cutlass::)?(Aligned)?Array<.*|\\w*LoadT|\\w*StoreT|LoadType|AccessType)$")) @vector_access

(cast_expression
  type: (type_descriptor
    type: (type_identifier) @_type
    declarator: (abstract_pointer_declarator))
  (#match? @_type
    "^((char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double)[1-4](_\\w+)?|(__)?half2|(__)?nv_bfloat162|\\w*[vV]ec(tor)?\\w*)$")) @vector_access
