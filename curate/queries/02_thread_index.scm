; Thread hierarchy: the builtins (not a variable of the same name, as in `dim3 blockDim(256);`), the ranks and sizes of cooperative groups. The index expression made of them (the largest arithmetic
; expression that holds a builtin) is found by curate/syntax/defuse.py and labelled as a whole.
;
; example: __global__ void k() { int i = blockIdx.x * blockDim.x + threadIdx.x; }
; marks: blockIdx.x * blockDim.x + threadIdx.x
; example: __device__ void f() { unsigned lane = threadIdx.x & (warpSize - 1); }
; marks: threadIdx.x & (warpSize - 1)
; example: __device__ void f(cg::thread_group g) { int r = g.thread_rank(); }
; marks: g.thread_rank()
; example: __device__ int f(cg::grid_group grid) { return grid.thread_rank() + grid.size(); }
; marks: grid.thread_rank() + grid.size()
; example: void h() { dim3 blockDim(256); k<<<1, blockDim>>>(blockDim.x); }
; marks nothing
; example: void h(std::vector<int> v) { f(v.size()); }
; marks nothing
; example: __device__ int f(int i, int n) { return i * n + 1; }
; marks nothing

(field_expression
  argument: (identifier) @_builtin
  (#any-of? @_builtin "threadIdx" "blockIdx" "blockDim" "gridDim" "clusterIdx" "clusterDim")) @thread_index

((identifier) @thread_index
  (#any-of? @thread_index "threadIdx" "blockIdx" "blockDim" "gridDim" "warpSize"))

(call_expression
  function: (field_expression
    field: (field_identifier) @_rank)
  (#any-of? @_rank
    "thread_rank" "block_rank" "cluster_rank" "meta_group_rank" "thread_index" "group_index" "block_index" "cluster_index"
    "num_threads" "num_blocks" "meta_group_size" "group_dim" "dim_threads" "dim_blocks")) @thread_index.device

; the size of a group; a tensor's size has an argument
(call_expression
  function: (field_expression
    field: (field_identifier) @_size)
  arguments: (argument_list) @_none
  (#eq? @_size "size")
  (#match? @_none "^\\(\\s*\\)$")) @thread_index.device
