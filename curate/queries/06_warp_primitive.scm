; Warp primitives: shuffle, vote, match, reduce, the active mask; and the collectives that libraries build from them (cub, cooperative
; groups). A method such as `.any()` counts in device code only.
;
; example: __device__ float f(float v) { v += __shfl_down_sync(0xffffffff, v, 16); return v; }
; marks: __shfl_down_sync(0xffffffff, v, 16)
; example: __device__ unsigned f(bool p) { return __ballot_sync(__activemask(), p); }
; marks: __ballot_sync(__activemask(), p)
; example: __device__ float f(cg::thread_block_tile<32> w, float v) { return cg::reduce(w, v, cg::plus<float>()) + w.shfl_xor(v, 1); }
; marks: cg::reduce(w, v, cg::plus<float>()) ~ w.shfl_xor(v, 1)
; example: __device__ float f(float v) { return BlockReduce(temp).Sum(v) + cub::WarpScan<float>(temp).Sum(v); }
; marks: BlockReduce(temp).Sum(v) ~ cub::WarpScan<float>(temp).Sum(v)
; example: bool h(torch::Tensor t) { return t.any(); }
; marks nothing

(call_expression
  function: (identifier) @_name
  (#match? @_name
    "^(__shfl(_up|_down|_xor)?(_sync)?|__(ballot|any|all|uni)(_sync)?|__match_(any|all)_sync|__reduce_(add|min|max|and|or|xor)_sync|__activemask|__fns|WARP_(SHFL|BALLOT)\\w*|SHFL_\\w*SYNC)$")) @warp_primitive

(call_expression
  function: (template_function
    name: (identifier) @_name)
  (#match? @_name "^__(shfl\\w*|match_\\w+|reduce_\\w+)_sync$")) @warp_primitive

(call_expression
  function: (qualified_identifier) @_name
  (#match? @_name
    "^(::)?(cg|cooperative_groups)::(reduce|reduce_update_async|reduce_store_async|inclusive_scan|exclusive_scan|inclusive_scan_update|exclusive_scan_update|plus|less|greater|bit_and|bit_or|bit_xor)(<|$)|^(::)?(cuda::device::warp_shuffle|cub::Shuffle)\\w*(<|$)")) @warp_primitive

(call_expression
  function: (field_expression
    field: [(field_identifier) @_name (template_method name: (field_identifier) @_name)])
  (#any-of? @_name "shfl" "shfl_up" "shfl_down" "shfl_xor" "ballot" "any" "all" "match_any" "match_all")) @warp_primitive.device

; cub's block and warp collectives
(qualified_identifier
  scope: (namespace_identifier) @_space
  name: [(type_identifier) @_name (template_type name: (type_identifier) @_name)]
  (#eq? @_space "cub")
  (#match? @_name "^(Block|Warp)")) @warp_primitive

; a call of one, through its usual aliases too: `BlockReduce(temp).Sum(v)`
(call_expression
  function: (field_expression
    argument: (call_expression
      function: [
        (identifier) @_name
        (template_function name: (identifier) @_name)
        (qualified_identifier name: [(identifier) @_name (template_function name: (identifier) @_name)])
      ]))
  (#match? @_name
    "^(Block|Warp)(Reverse)?(Reduce|Scan|Load|Store|Exchange|RadixSort|RadixRank|MergeSort|Histogram|Discontinuity|AdjacentDifference|Shuffle)\\w*$")) @warp_primitive.device
