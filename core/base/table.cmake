# table.cmake: puts files into the binary, as a table of rows in assembler. Their bytes come in by .incbin; a changed file is assembled again, an added
# or removed one writes the table again.

# The command that compresses `from` into `to`, for add_custom_command.
function(moonpool_gzip from to result)
    set(${result} COMMAND sh -c [[gzip -9n <"$0" >"$1.new" && mv "$1.new" "$1"]] ${from} ${to} PARENT_SCOPE)
endfunction()

# Adds a row to the table TABLE, which a directory's properties hold: the pointers of `names` (texts), a pointer to the bytes of `file` and their
# number, and a number `flag` if it is not empty.
function(moonpool_table_row table file flag)
    get_property(i DIRECTORY PROPERTY ${table}_count)
    if(NOT i)
        set(i 0)
    endif()
    set(label .L${table}${i})
    set(row "    .dc.a ")
    set(names "")
    set(n 0)
    foreach(name ${ARGN})
        string(APPEND row "${label}_name${n}, ")
        string(APPEND names "${label}_name${n}: .asciz \"${name}\"\n")
        math(EXPR n "${n} + 1")
    endforeach()
    string(APPEND row "${label}, ${label}_end - ${label}")
    if(NOT flag STREQUAL "")
        string(APPEND row ", ${flag}")
    endif()
    set(bytes "${label}: .incbin \"${file}\"\n${label}_end: .byte 0\n")
    math(EXPR i "${i} + 1")
    set_property(DIRECTORY PROPERTY ${table}_count ${i})
    set_property(DIRECTORY APPEND_STRING PROPERTY ${table}_rows "${row}\n")
    set_property(DIRECTORY APPEND_STRING PROPERTY ${table}_names "${names}")
    set_property(DIRECTORY APPEND_STRING PROPERTY ${table}_bytes "${bytes}")
    set_property(DIRECTORY APPEND PROPERTY ${table}_files ${file})
endfunction()

# Writes the table as the array `table`, whose length is in `count`. Each is a symbol of C. `target` makes the files. All names lie together: who looks for
# one reads no page of the files before it.
function(moonpool_table_write table count target result)
    get_property(i DIRECTORY PROPERTY ${table}_count)
    get_property(rows DIRECTORY PROPERTY ${table}_rows)
    get_property(names DIRECTORY PROPERTY ${table}_names)
    get_property(bytes DIRECTORY PROPERTY ${table}_bytes)
    get_property(files DIRECTORY PROPERTY ${table}_files)
    # .dc.a is as wide as a pointer, and so is size_t.
    set(out ${CMAKE_BINARY_DIR}/${table}.S)
    file(CONFIGURE OUTPUT ${out} @ONLY CONTENT [[
/* Made by core/base/table.cmake. */
    .section .data.rel.ro.@table@, "aw"
    .balign 16
    .globl @table@, @count@
    .hidden @table@, @count@
@table@:
@rows@
@count@:
    .dc.a @i@

    .section .rodata.@table@, "a"
@names@
@bytes@
    .section .note.GNU-stack, "", %progbits
]])
    add_custom_target(${target} DEPENDS ${files})
    set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS "${files}")
    set(${result} ${out} PARENT_SCOPE)
endfunction()
