; What def-use, statements and locations are read from; no category of its own.

; ---- functions
(function_definition) @scope.function
(lambda_expression) @scope.function
(function_definition "__global__") @kernel
(function_definition "__device__") @device_function
(template_declaration (function_definition "__global__")) @kernel.outer
(template_declaration (function_definition "__device__")) @device_function.outer
(linkage_specification body: (function_definition "__global__")) @kernel.outer
(linkage_specification body: (function_definition "__device__")) @device_function.outer
"__global__" @global
(declaration "__global__" @global.prototype ";" @global.prototype.end)
(template_instantiation "__global__" @global.prototype ";" @global.prototype.end)
(preproc_arg) @macro

; ---- launches; lists of names, not patterns, since every call is compared with them
(call_expression (kernel_call_syntax)) @launch_expression
(kernel_call_syntax) @launch_chevrons
(call_expression
  function: [(identifier) @_name (template_function name: (identifier) @_name)]
  (#any-of? @_name
    "cudaLaunchKernel" "cudaLaunchKernelEx" "cudaLaunchKernelExC" "cudaLaunchKernelMultiDevice" "cudaLaunchCooperativeKernel"
    "cudaLaunchCooperativeKernelEx" "cudaLaunchCooperativeKernelExC" "cudaLaunchCooperativeKernelMultiDevice" "cuLaunchKernel"
    "cuLaunchKernelEx" "cuLaunchCooperativeKernel" "cuLaunchCooperativeKernelEx")) @launch_expression @launch_call
(declaration type: (type_identifier) @_type (#match? @_type "^(dim3|cudaLaunchConfig_t)$")) @launch_setup
; grid, block and dynamic shared memory; the stream is no part of the geometry
(kernel_call_syntax . (_) @config)
(kernel_call_syntax . (_) . (_) @config)
(kernel_call_syntax . (_) . (_) . (_) @config)
(call_expression
  function: [(identifier) @_name (template_function name: (identifier) @_name)]
  arguments: (argument_list . (_) . (_) @config)
  (#any-of? @_name "cudaLaunchKernel" "cudaLaunchCooperativeKernel" "cuLaunchKernel" "cuLaunchCooperativeKernel"))
(call_expression
  function: [(identifier) @_name (template_function name: (identifier) @_name)]
  arguments: (argument_list . (_) . (_) . (_) @config)
  (#any-of? @_name "cudaLaunchKernel" "cudaLaunchCooperativeKernel" "cuLaunchKernel" "cuLaunchCooperativeKernel"))
(call_expression
  function: [(identifier) @_name (template_function name: (identifier) @_name)]
  arguments: (argument_list . (_) @config)
  (#any-of? @_name "cudaLaunchKernelEx" "cudaLaunchKernelExC" "cuLaunchKernelEx" "cuLaunchKernelExC"))

; ---- statements
(declaration) @statement
(expression_statement) @statement
(return_statement) @statement
(field_declaration) @statement
(do_statement condition: (_) @statement)
(for_statement initializer: (declaration) @waive.statement)
(condition_clause initializer: (init_statement (_) @waive.statement))
(for_statement) @header
(for_range_loop) @header
(if_statement) @header
(while_statement) @header
(switch_statement) @header
(for_statement body: (_) @body)
(for_range_loop body: (_) @body)
(if_statement consequence: (_) @body)
(if_statement alternative: (_) @body)
(while_statement body: (_) @body)
(switch_statement body: (_) @body)
(do_statement body: (_) @body)

; ---- scopes
(compound_statement) @scope
(for_statement) @scope
(for_range_loop) @scope
(if_statement) @scope
(while_statement) @scope
(field_declaration_list) @scope
(declaration_list) @scope

; ---- definitions
(declaration type: (_) @type)
(for_range_loop type: (_) @type)
(init_declarator) @define
(init_declarator value: (_) @value)
(declaration declarator: (identifier) @declared)
(init_declarator declarator: (identifier) @declared)
(pointer_declarator declarator: (identifier) @declared.pointer)
(reference_declarator (identifier) @declared)
(array_declarator declarator: (identifier) @declared.array)
(for_range_loop declarator: (identifier) @declared)
(structured_binding_declarator (identifier) @declared)
(parameter_declaration declarator: (identifier) @parameter)
(parameter_declaration declarator: (_ (identifier) @parameter))
(optional_parameter_declaration declarator: (identifier) @parameter)
; `dim3 grid(blocks);` reads like the declaration of a function
(declaration
  type: (type_identifier) @_type
  declarator: (function_declarator
    declarator: (identifier) @declared
    parameters: (parameter_list) @value) @define
  (#eq? @_type "dim3"))
(declaration
  type: (type_identifier) @_type
  declarator: (function_declarator
    parameters: (parameter_list
      (parameter_declaration
        type: (type_identifier) @use)))
  (#eq? @_type "dim3"))
(assignment_expression) @define
(assignment_expression left: (identifier) @assigned)
(assignment_expression left: (field_expression argument: (identifier) @assigned.field))
(assignment_expression right: (_) @value)

; ---- how a value travels through an expression
(identifier) @use
; arithmetic or comparison: the operator is read outside, a query for it would keep a state for every level of nesting
(binary_expression) @binary
(parenthesized_expression) @arithmetic
(cast_expression) @arithmetic
(unary_expression operator: ["-" "+" "~"]) @arithmetic
(call_expression
  function: (template_function name: (identifier) @_name)
  (#eq? @_name "static_cast")) @arithmetic @waive.block
(call_expression function: (primitive_type)) @arithmetic @waive.block
(call_expression
  function: (identifier) @_name
  (#any-of? @_name
    "min" "max" "abs" "umin" "umax" "__mul24" "__umul24" "__mulhi" "__umulhi" "make_int2" "make_int3" "make_int4" "make_uint2" "make_uint3"
    "dim3" "ceil_div" "cdiv" "div_up" "divup" "ceildiv" "CEIL_DIV" "DIVUP" "uint32_t" "int32_t" "int64_t" "uint64_t" "size_t")) @waive.block
(unary_expression operator: "!") @carry
(conditional_expression) @carry
(initializer_list) @carry
(call_expression) @block
(subscript_expression) @block
(pointer_expression operator: "&" argument: (subscript_expression) @waive.block)
(pointer_expression operator: "*") @block
(sizeof_expression) @block
(decltype) @block
(template_argument_list) @block
; a member function says something about its object, but the object is not an operand: `x.size(0)` does not make `x` an index
(call_expression function: (field_expression argument: (_) @object))

; ---- never labelled, and what is not understood
(comment) @neutral
(string_literal) @neutral
(raw_string_literal) @neutral
(char_literal) @neutral
(system_lib_string) @neutral
(ERROR) @error
(MISSING) @missing
