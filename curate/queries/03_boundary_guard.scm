; Boundary guards: conditions on values that are derived from a thread index. The query captures every condition; def-use
; (curate/syntax/defuse.py) keeps those that an index reaches. A condition on a value that was loaded through an index is none.
;
; example: __global__ void k(int n) { int i = threadIdx.x; if (i < n) { f(); } }
; marks: (i < n)
; example: __global__ void k(int n) { for (int i = threadIdx.x; i < n; i += 32) f(); }
; marks: i < n
; example: __global__ void k(float* a, int n) { int i = threadIdx.x; float x = a[i]; if (x > 0.f) f(); }
; marks nothing
; example: void h(int n) { for (int i = 0; i < n; ++i) f(); }
; marks nothing

(condition_clause) @boundary_guard
(for_statement condition: (_) @boundary_guard)
(do_statement condition: (_) @boundary_guard)
(conditional_expression condition: (_) @boundary_guard)
