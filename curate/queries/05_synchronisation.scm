; Synchronisation of a block, a warp, a group; barriers and pipelines, and the cooperative-group handles that they hang on.
; A method such as `.wait()` counts in device code only.
;
; example: __global__ void k() { __syncthreads(); }
; marks: __syncthreads()
; example: __global__ void k(int p) { if (__syncthreads_or(p)) return; __syncwarp(); }
; marks: __syncthreads_or(p) ~ __syncwarp()
; example: __global__ void k() { auto block = cg::this_thread_block(); block.sync(); cg::sync(block); }
; marks: cg::this_thread_block() ~ block.sync() ~ cg::sync(block)
; example: __global__ void k() { cg::this_grid().sync(); __pipeline_commit(); }
; marks: cg::this_grid().sync() ~ __pipeline_commit()
; example: __device__ void f() { cg::thread_block b = g(); cg::thread_block_tile<32> t = cg::tiled_partition<32>(b); }
; marks: cg::thread_block ~ cg::thread_block_tile<32> ~ cg::tiled_partition<32>(b)
; example: __device__ void f(barrier& bar, rng_t& rng) { init(&bar, 128); init(&rng, 128); }
; marks: init(&bar, 128)
; example: __device__ void f() { cp_async_commit(); cp_async_wait_group<0>(); CP_ASYNC_WAIT_GROUP(1); }
; marks: cp_async_commit() ~ cp_async_wait_group<0>() ~ CP_ASYNC_WAIT_GROUP(1)
; example: __device__ void f() { cde::cp_async_bulk_commit_group(); cde::cp_async_bulk_wait_group_read<0>(); }
; marks: cde::cp_async_bulk_commit_group() ~ cde::cp_async_bulk_wait_group_read<0>()
; example: void h(T t) { t.wait(); }
; marks nothing

(call_expression
  function: (identifier) @_name
  (#any-of? @_name
    "__syncthreads" "__syncthreads_count" "__syncthreads_and" "__syncthreads_or" "__syncwarp" "__barrier_sync" "__barrier_sync_count"
    "__nanosleep" "__cluster_barrier_arrive" "__cluster_barrier_arrive_relaxed" "__cluster_barrier_wait"
    "__pipeline_commit" "__pipeline_wait_prior" "__pipeline_arrive_on"
    "__mbarrier_init" "__mbarrier_inval" "__mbarrier_arrive" "__mbarrier_arrive_and_drop" "__mbarrier_test_wait"
    "__mbarrier_token_pending_count" "__mbarrier_maximum_count"
    "this_thread_block" "this_grid" "this_cluster" "this_multi_grid" "coalesced_threads")) @synchronisation

(call_expression
  function: (qualified_identifier) @_name
  (#match? @_name
    "^(::)?(cg|cooperative_groups|cuda|cuda::device|cuda::device::experimental|cde|cuda::ptx|ptx|cub|cute|cutlass::arch)::(this_thread_block|this_grid|this_cluster|this_multi_grid|this_thread|coalesced_threads|sync|wait|wait_prior|barrier_arrive|barrier_wait|tiled_partition|labeled_partition|binary_partition|invoke_one|invoke_one_broadcast|make_pipeline|pipeline_consumer_wait_prior|pipeline_producer_commit|barrier_arrive_tx|barrier_expect_tx|mbarrier_\\w+|cp_async_commit_group|cp_async_wait_group|cp_async_wait_all|cp_async_bulk_commit_group|cp_async_bulk_wait_group|cp_async_bulk_wait_group_read|cp_async_wait|cp_async_fence|CTA_SYNC|cluster_sync|cluster_arrive|cluster_wait|fence_barrier_init|NamedBarrier::\\w+)(<|$)")) @synchronisation

(call_expression
  function: (template_function
    name: (identifier) @_name)
  (#any-of? @_name "tiled_partition" "labeled_partition")) @synchronisation

(call_expression
  function: (field_expression
    field: (field_identifier) @_name)
  (#any-of? @_name
    "sync" "wait" "arrive" "arrive_and_wait" "arrive_and_drop" "wait_parity" "try_wait" "try_wait_parity" "barrier_arrive" "barrier_wait"
    "producer_acquire" "producer_commit" "consumer_wait" "consumer_release" "quit")) @synchronisation.device

; the wait for asynchronous copies, as wrappers of the PTX are usually named
(call_expression
  function: [(identifier) @_name (template_function name: (identifier) @_name)]
  (#match? @_name "^(cp_async|CP_ASYNC)_(\\w+_)?(commit|wait|fence|COMMIT|WAIT|FENCE)(_\\w+)?$")) @synchronisation

; the constructor of a cuda::barrier
(call_expression
  function: (identifier) @_name
  arguments: (argument_list . (pointer_expression operator: "&") @_barrier . (_) .)
  (#eq? @_name "init")
  (#match? @_barrier "[bB]ar")) @synchronisation.device

; the types of groups, barriers and pipelines
(qualified_identifier
  scope: (namespace_identifier) @_space
  name: [(type_identifier) @_name (template_type name: (type_identifier) @_name)]
  (#any-of? @_space "cg" "cooperative_groups")
  (#any-of? @_name
    "thread_block" "thread_block_tile" "grid_group" "cluster_group" "multi_grid_group" "coalesced_group" "thread_group")) @synchronisation

; `cg::thread_block_tile<32> tile = f();` behind another declaration is parsed as two comparisons
(binary_expression
  left: (binary_expression
    left: (qualified_identifier
      scope: (namespace_identifier) @_space
      name: (identifier) @_name)
    operator: "<") @synchronisation
  operator: ">" @synchronisation
  right: (assignment_expression)
  (#any-of? @_space "cg" "cooperative_groups")
  (#eq? @_name "thread_block_tile"))

(qualified_identifier
  scope: (namespace_identifier) @_space
  name: [
    (type_identifier) @_name
    (template_type name: (type_identifier) @_name)
    (qualified_identifier name: [(type_identifier) @_name (template_type name: (type_identifier) @_name)])
  ]
  (#eq? @_space "cuda")
  (#any-of? @_name "barrier" "pipeline" "pipeline_shared_state" "counting_semaphore" "binary_semaphore" "latch")) @synchronisation

((type_identifier) @synchronisation
  (#any-of? @synchronisation "thread_block" "thread_block_tile" "grid_group" "cluster_group" "coalesced_group" "thread_group"
    "__mbarrier_t" "__mbarrier_token_t"))
