; Atomics and fences.
;
; example: __global__ void k(float* out, float v) { atomicAdd(&out[0], v); __threadfence(); }
; marks: atomicAdd(&out[0], v) ~ __threadfence()
; example: __device__ void f(int* p) { cuda::atomic_ref<int, cuda::thread_scope_device> r(*p); r.fetch_add(1); }
; marks: cuda::atomic_ref<int, cuda::thread_scope_device> ~ r.fetch_add(1)
; example: __device__ void f(unsigned* p) { atomicCAS_block(p, 0u, 1u); __threadfence_system(); }
; marks: atomicCAS_block(p, 0u, 1u) ~ __threadfence_system()
; example: __device__ void f() { cde::fence_proxy_async_shared_cta(); }
; marks: cde::fence_proxy_async_shared_cta()
; example: __device__ int f(int a) { return add(a, 1); }
; marks nothing

(call_expression
  function: [(identifier) @_name (template_function name: (identifier) @_name)]
  (#match? @_name
    "^(((gpu|fast|fastSpecialized)A|a)tomic_?(Add|Sub|Exch|Min|Max|Inc|Dec|CAS|And|Or|Xor|Mul|add|sub|exch|min|max|cas)|__threadfence(_block|_system)?$|__nv_atomic_)")) @atomic

(call_expression
  function: (qualified_identifier) @_name
  (#match? @_name
    "^(::)?(at::native::|cuda::|cuda::std::|cuda::device::experimental::|cde::|cuda::ptx::|ptx::|std::)?(atomic_thread_fence|atomic_signal_fence|(gpu|fast)?[aA]tomic(Add|Max|Min|CAS|Exch|Mul)\\w*|fence_proxy_\\w+|fence_\\w+|red_async|atomic_\\w+)(<|$)")) @atomic

(qualified_identifier
  scope: (namespace_identifier) @_space
  name: [
    (template_type name: (type_identifier) @_name)
    (qualified_identifier name: (template_type name: (type_identifier) @_name))
  ]
  (#eq? @_space "cuda")
  (#any-of? @_name "atomic" "atomic_ref" "atomic_flag")) @atomic

(call_expression
  function: (field_expression
    field: (field_identifier) @_name)
  (#any-of? @_name
    "fetch_add" "fetch_sub" "fetch_and" "fetch_or" "fetch_xor" "fetch_min" "fetch_max" "compare_exchange_strong"
    "compare_exchange_weak" "test_and_set" "notify_one" "notify_all")) @atomic.device
