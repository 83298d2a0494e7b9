# ui.cmake: puts the files of core/gateway/admin/ui into the binary, compressed, as the table mp_ui_files[] of ui.c.

function(moonpool_ui result)
    set(folder ${CMAKE_SOURCE_DIR}/core/gateway/admin/ui)
    file(GLOB files CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*)
    list(SORT files)
    set(rows "")
    set(bytes "")
    set(depends "")
    set(i 0)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/compiled/ui)
    foreach(file ${files})
        set(packed ${CMAKE_BINARY_DIR}/compiled/ui/${file}.gz)
        add_custom_command(OUTPUT ${packed} COMMAND sh -c "gzip -9n < ${folder}/${file} > ${packed}" DEPENDS ${folder}/${file} VERBATIM)
        string(APPEND rows "    .dc.a .Lui_name${i}, .Lui_text${i}, .Lui_end${i} - .Lui_text${i}\n")
        string(APPEND bytes ".Lui_name${i}: .asciz \"${file}\"\n.Lui_text${i}: .incbin \"${packed}\"\n.Lui_end${i}: .byte 0\n")
        list(APPEND depends ${packed})
        math(EXPR i "${i} + 1")
    endforeach()
    set(out ${CMAKE_BINARY_DIR}/ui.S)
    file(CONFIGURE OUTPUT ${out} @ONLY CONTENT [[
/* Made by core/gateway/admin/ui.cmake. */
    .section .data.rel.ro.mp_ui_files, "aw"
    .balign 16
    .globl mp_ui_files, mp_ui_file_count
    .hidden mp_ui_files, mp_ui_file_count
mp_ui_files:
@rows@
mp_ui_file_count:
    .dc.a @i@

    .section .rodata.mp_ui_files, "a"
@bytes@
    .section .note.GNU-stack, "", %progbits
]])
    add_custom_target(packed_ui DEPENDS ${depends})
    set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS "${depends}")
    set(${result} ${out} PARENT_SCOPE)
endfunction()
