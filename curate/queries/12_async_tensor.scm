; Asynchronous copies, tensor cores, inline PTX. The text of an `asm` statement is PTX: it is the construct itself, not a string of the
; program, and keeps the label. Committing and waiting is category 5.
;
; example: __device__ void f(void* s, const void* g) { __pipeline_memcpy_async(s, g, 16); }
; marks: __pipeline_memcpy_async(s, g, 16)
; example: __device__ void f() { wmma::fragment<wmma::accumulator, 16, 16, 16, float> c; wmma::fill_fragment(c, 0.f); }
; marks: wmma::fragment<wmma::accumulator, 16, 16, 16, float> ~ wmma::fill_fragment(c, 0.f)
; example: __device__ unsigned f() { unsigned r; asm volatile("mov.u32 %0, %laneid;" : "=r"(r)); return r; }
; marks: asm volatile("mov.u32 %0, %laneid;" : "=r"(r))
; example: __device__ void f() { CP_ASYNC_CG(d, s, 16); LDMATRIX_X4(a, b, c, d, p); HMMA16816(r, a, b); }
; marks: CP_ASYNC_CG(d, s, 16) ~ LDMATRIX_X4(a, b, c, d, p) ~ HMMA16816(r, a, b)
; example: __device__ void f() { cp_async_wait_group<0>(); ptx::cp_async_bulk_wait_group(n); }
; marks nothing
; example: void h(float* d, float* s) { memcpy(d, s, 4); }
; marks nothing

(call_expression
  function: [(identifier) @_name (template_function name: (identifier) @_name)]
  (#match? @_name
    "^(__pipeline_memcpy_async|memcpy_async|memcpy_async_tx|load_matrix_sync|store_matrix_sync|mma_sync|fill_fragment|__wmma_\\w+|__(hmma|imma|bmma|dmma|mma)_\\w+|(cp_async|CP_ASYNC)(?!\\w*(commit|wait|fence|COMMIT|WAIT|FENCE))\\w*|ldmatrix\\w*|LDMATRIX\\w*|HMMA\\w*|stmatrix\\w*|mma_m\\d+n\\d+k\\d+\\w*|wgmma\\w*|tcgen05\\w*|__nv_ptx_builtin_\\w+|__cvta_generic_to_shared|__nvvm_\\w+)$")) @async_tensor

(call_expression
  function: (qualified_identifier) @_name
  (#match? @_name
    "^(::)?((nvcuda::)?wmma::(load_matrix_sync|store_matrix_sync|mma_sync|bmma_sync|fill_fragment|__float_to_tf32)|(cuda|cg|cooperative_groups|cuda::device|cuda::device::experimental|cde)::(memcpy_async|memcpy_async_tx|cp_async_bulk(?!\\w*(commit|wait|fence|COMMIT|WAIT|FENCE))\\w*)|(cuda::)?ptx::(cp_async(?!\\w*(commit|wait|fence|COMMIT|WAIT|FENCE))\\w*|ldmatrix\\w*|mma\\w*|wgmma\\w*|tcgen05\\w*|tensormap\\w*|st_async\\w*|get_sreg_\\w+))(<|$)")) @async_tensor

(qualified_identifier
  scope: (namespace_identifier) @_space
  (#any-of? @_space "wmma" "nvcuda")) @async_tensor

(template_type
  name: (type_identifier) @_name
  arguments: (template_argument_list
    (type_descriptor
      type: [(type_identifier) (qualified_identifier)] @_use))
  (#eq? @_name "fragment")
  (#match? @_use "(matrix_a|matrix_b|accumulator)$")) @async_tensor

((type_identifier) @async_tensor
  (#eq? @async_tensor "CUtensorMap"))

(using_declaration
  [(identifier) (qualified_identifier)] @_space
  (#match? @_space "^nvcuda")) @async_tensor

(gnu_asm_expression) @async_tensor
(gnu_asm_expression assembly_code: (string_literal) @async_tensor)
(gnu_asm_expression assembly_code: (concatenated_string (string_literal) @async_tensor))
(gnu_asm_output_operand constraint: (string_literal) @async_tensor)
(gnu_asm_input_operand constraint: (string_literal) @async_tensor)
(gnu_asm_clobber_list (string_literal) @async_tensor)
