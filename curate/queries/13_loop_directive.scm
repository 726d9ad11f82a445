; Directives on a loop, and the same through `_Pragma` in a macro.
;
; example: __device__ void f() { _Pragma("unroll") for (int i = 0; i < 4; ++i) g(i); }
; marks: _Pragma("unroll")
; example: #pragma unroll 4
; marks: #pragma unroll 4
; example: #pragma nounroll
; marks: #pragma nounroll
; example: #pragma nv_diag_suppress 177
; marks nothing
; example: #pragma once
; marks nothing

(preproc_call
  directive: (preproc_directive) @_directive
  argument: (preproc_arg) @_argument
  (#match? @_directive "^#\\s*pragma$")
  (#match? @_argument "^(unroll|nounroll|ivdep|GCC unroll|GCC ivdep|clang loop)")) @loop_directive

(call_expression
  function: (identifier) @_name
  arguments: (argument_list (string_literal) @_argument @loop_directive)
  (#eq? @_name "_Pragma")
  (#match? @_argument "unroll|ivdep")) @loop_directive
