# embed.cmake: puts every lua/moonpool/**.lua into the binary, as the table mp_embedded[] of embedded.h: compiled, with its
# line numbers, because compiling them at each start would be most of it. What a start does not load that only serves plain scripts is compressed.
# The bytes come in by .incbin; a changed file is compiled and the table assembled again, an added or removed one writes it again.

find_program(LUA lua5.4 REQUIRED DOC "Compiles lua/moonpool (Debian: lua5.4)")
set(embed_lua ${CMAKE_CURRENT_LIST_DIR}/embed.lua)

function(moonpool_embed result)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/lua/moonpool/*.lua)
    list(SORT files)
    set(rows "")
    set(bytes "")
    set(depends "")
    set(i 0)
    foreach(file ${files})
        string(REGEX REPLACE "^lua/" "" module ${file})
        string(REGEX REPLACE "(/init)?\\.lua$" "" module ${module})
        string(REPLACE "/" "." module ${module})
        set(compiled ${CMAKE_BINARY_DIR}/compiled/${file}c)
        get_filename_component(folder ${compiled} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        set(is_packed 0)
        set(pack "")
        if(file MATCHES "^lua/moonpool/(workbench|specs|upstream|lib/(http|jwt))/|^lua/moonpool/lib/(cron|exec|fs|metrics|sqlite|store|zone)"
           OR file MATCHES "/access/auth/(api_keys|claims|introspection|options|proxy|tls)|/runtime/(cached_file|characters|hint_names|single_flight)"
           OR file MATCHES "/registry/(callers|classes|describe|examined|explain|federated|followed|hint|lint|open_blocks|upstream)|/schema/meta")
            set(is_packed 1)
            set(pack COMMAND sh -c "gzip -9n < ${compiled} > ${compiled}.gz && mv ${compiled}.gz ${compiled}")
        endif()
        add_custom_command(OUTPUT ${compiled} COMMAND ${LUA} ${embed_lua} ${file} ${compiled} ${pack} DEPENDS ${file} ${embed_lua}
                           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM)
        string(APPEND rows "    .dc.a .Lname${i}, .Lpath${i}, .Ltext${i}, .Lend${i} - .Ltext${i}, ${is_packed}\n")
        string(APPEND bytes ".Lname${i}: .asciz \"${module}\"\n.Lpath${i}: .asciz \"${file}\"\n"
                            ".Ltext${i}: .incbin \"${compiled}\"\n.Lend${i}: .byte 0\n")
        list(APPEND depends ${compiled})
        math(EXPR i "${i} + 1")
    endforeach()

    # Files that are printed as they are. `require` finds no name with a '/'.
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/compiled/lua/types)
    foreach(file lua/types/moonpool.d.lua lua/types/moonpool_spec.d.lua)
        set(packed ${CMAKE_BINARY_DIR}/compiled/${file}.gz)
        add_custom_command(OUTPUT ${packed} COMMAND sh -c "gzip -9n < ${file} > ${packed}" DEPENDS ${file}
                           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM)
        string(APPEND rows "    .dc.a .Lname${i}, .Lpath${i}, .Ltext${i}, .Lend${i} - .Ltext${i}, 1\n")
        string(APPEND bytes ".Lname${i}: .asciz \"/${file}\"\n.Lpath${i}: .asciz \"${file}\"\n"
                            ".Ltext${i}: .incbin \"${packed}\"\n.Lend${i}: .byte 0\n")
        list(APPEND depends ${packed})
        math(EXPR i "${i} + 1")
    endforeach()

    # .dc.a is as wide as a pointer, and so is size_t.
    set(out ${CMAKE_BINARY_DIR}/embedded.S)
    file(CONFIGURE OUTPUT ${out} @ONLY CONTENT [[
/* Made by core/vm/embed.cmake. */
    .section .data.rel.ro.mp_embedded, "aw"
    .balign 16
    .globl mp_embedded, mp_embedded_count
    .hidden mp_embedded, mp_embedded_count
mp_embedded:
@rows@
mp_embedded_count:
    .dc.a @i@

    .section .rodata.mp_embedded, "a"
@bytes@
    .section .note.GNU-stack, "", %progbits
]])
    add_custom_target(compiled DEPENDS ${depends})
    set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS "${depends}")
    set(${result} ${out} PARENT_SCOPE)
endfunction()
