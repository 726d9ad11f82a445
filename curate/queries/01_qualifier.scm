; Execution qualifiers: where a function runs, how it may be launched, and what a pointer or a parameter promises.
; `__launch_bounds__(...)` and the qualifier of a lambda are blanked before parsing and labelled from there (curate/syntax/normalise.py).
;
; example: __global__ void k(int n) {}
; marks: __global__
; example: __host__ __device__ __forceinline__ int f(const int* __restrict__ p) { return *p; }
; marks: __host__ ~ __device__ ~ __forceinline__ ~ __restrict__
; example: __global__ void __launch_bounds__(256, 2) k() {}
; marks: __global__ ~ __launch_bounds__(256, 2)
; example: __device__ float table[4];
; marks nothing

["__global__" "__device__" "__host__" "__forceinline__" "__noinline__"] @qualifier
["__restrict__" "restrict" "__grid_constant__"] @qualifier
(ms_restrict_modifier) @qualifier
