; Precision and math intrinsics: rounding-mode and fast-math intrinsics, functions that only CUDA has, half, bfloat16 and fp8 arithmetic,
; conversions and types, integer and bit intrinsics, packed dot products. The C library's own functions (expf, fmaf, sqrtf) are neutral.
;
; example: __device__ float f(float x) { return __fmaf_rn(x, x, 1.f) * rsqrtf(x); }
; marks: __fmaf_rn(x, x, 1.f) ~ rsqrtf(x)
; example: __device__ float f(__half h) { return __half2float(__hadd(h, h)); }
; marks: __half ~ __half2float(__hadd(h, h))
; example: __device__ int f(unsigned m) { return __popc(m) + __dp4a(1, 2, 3); }
; marks: __popc(m) ~ __dp4a(1, 2, 3)
; example: __device__ bool f(half2 a, half2 b) { return __hbgt2(a, b); }
; marks: __hbgt2(a, b)
; example: __device__ float f(int x) { half h = half(x); return h; }
; marks: half ~ half(x)
; example: void h() { f(sizeof(half)); INSTANTIATE(__half); }
; marks: half ~ __half
; example: __device__ long f() { return clock64() - clock(); }
; marks: clock64() ~ clock()
; example: long h(int half) { return clock() / half; }
; marks nothing
; example: __device__ float f(float x) { return expf(x) + sqrtf(x); }
; marks nothing

(call_expression
  function: (identifier) @_name
  (#match? @_name
    "^(__(fmaf|fadd|fsub|fmul|fdiv|fsqrt|frcp|frsqrt|dadd|dsub|dmul|ddiv|dsqrt|drcp|fma|float2\\w+|double2\\w+|int2\\w+|uint2\\w+|ll2\\w+|ull2\\w+|longlong_as_double|double_as_longlong|hiloint2double)_?(ieee_)?(rn|rz|ru|rd)?|__(expf|exp10f|logf|log2f|log10f|powf|sinf|cosf|tanf|sincosf|fdividef|saturatef|tanhf|frsqrt_rn)|__(float|int|uint)_as_\\w+|__double2(hi|lo)int|__h(add|sub|mul|div|fma|neg|abs|min|max|b?(eq|ne|lt|le|gt|ge)|isnan|isinf|cmadd)(2|2_rn|_rn|_sat|2_sat|_relu|2_relu|u|2u|b\\w*|_nan|2_nan)?|h(exp|exp2|exp10|log|log2|log10|sqrt|rsqrt|rcp|sin|cos|tanh|trunc|floor|ceil|rint)|h2(exp|exp2|exp10|log|log2|log10|sqrt|rsqrt|rcp|sin|cos|tanh|trunc|floor|ceil|rint|div)|__(half|halves|low|high|float|bfloat16|bfloat162|double|short|ushort|nv)\\w*2(half|float|bfloat16|half2|bfloat162|float2|highlow|low|high)\\w*|__(low|high)s?2\\w+|__lowhigh2\\w+|__(half|short|ushort|bfloat16)_as_\\w+|__nv_cvt_\\w+|__half2\\w+|__bfloat16\\w*2\\w+|__int2(half|bfloat16)\\w*|(__)?half|(__)?nv_bfloat16)$")) @math_intrinsic

(call_expression
  function: (identifier) @_name
  (#match? @_name
    "^(__(popc|popcll|clz|clzll|ffs|ffsll|brev|brevll|byte_perm|mul24|umul24|mulhi|umulhi|mul64hi|umul64hi|sad|usad|hadd|rhadd|uhadd|urhadd|funnelshift_\\w+|dp[24]a\\w*|vabs\\w*|vadd\\w*|vsub\\w*|vmax\\w*|vmin\\w*|vcmp\\w*|vset\\w*|vavg\\w*|vneg\\w*|vsad\\w*|vimin\\w*|vimax\\w*|vib\\w*|viadd\\w*|bfe|bfi|lanemask\\w*)|r?sqrt_rn|rsqrtf?|rcbrtf?|exp10f?|sinpif?|cospif?|sincospif?|sincosf?|fdividef|normcdff?|normcdfinvf?|erfcxf?|erfinvf?|erfcinvf?|rhypotf?|r?norm[34]df?|r?normf?|cyl_bessel_i[01]f?|saturatef?|use_fast_\\w+|clock64|__clock|__clock64)$")) @math_intrinsic

; the C library has a clock too
(call_expression
  function: (identifier) @_name
  (#eq? @_name "clock")) @math_intrinsic.device

; a type as the argument of sizeof or of a macro is parsed as a variable, which may well be named half
(argument_list
  (identifier) @math_intrinsic
  (#any-of? @math_intrinsic "__half" "__nv_bfloat16" "nv_bfloat16"))
(sizeof_expression
  (parenthesized_expression (identifier) @math_intrinsic)
  (#any-of? @math_intrinsic "half" "__half" "__nv_bfloat16" "nv_bfloat16"))

((type_identifier) @math_intrinsic
  (#match? @math_intrinsic "^((__)?half|(__)?nv_bfloat16|__half_raw|__nv_bfloat16_raw|__nv_fp8_e\\w+|__nv_fp[46]_e\\w+|__nv_fp8_storage_t|bfloat16)$"))
