; Memory-space declarations, whole: `__shared__`, `__constant__`, `__managed__`, variables in `__device__` memory, dynamic shared memory
; (an extern array without a size). Accesses to them are neutral.
;
; example: __global__ void k() { __shared__ float tile[32][33]; tile[0][0] = 1.f; }
; marks: __shared__ float tile[32][33];
; example: __global__ void k() { extern __shared__ float s[]; }
; marks: extern __shared__ float s[];
; example: __constant__ float weights[64];
; marks: __constant__ float weights[64];
; example: __device__ int counter = 0;
; marks: __device__ int counter = 0;
; example: __device__ int f(int x);
; marks nothing

(declaration
  (type_qualifier ["__shared__" "__constant__" "__managed__" "__local__"])) @memory_space

(declaration
  "__device__" @memory_space
  declarator: [
    (identifier)
    (array_declarator)
    (init_declarator)
    (pointer_declarator declarator: (identifier))
  ]) @memory_space
