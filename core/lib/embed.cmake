# embed.cmake: puts every lua/moonpool/**.lua into the binary, as the table mp_embedded[] of embedded.h: compiled, with its
# line numbers, because compiling them at each start would be most of it; or as text.

find_program(LUA lua5.4 REQUIRED DOC "Compiles lua/moonpool (Debian: lua5.4)")
# The modules that are compressed: a start with plain scripts loads none of them (spec/house/packed_spec.lua). Those of them that commands use,
# and few set-ups, are texts without comments: two thirds of the bytes of their bytecode, and 30 ms to compile for each MB.
set(moonpool_packed "^lua/moonpool/(workbench|specs|replay|upstream|federation|cluster|sign_in|lib/(http|jwt))/|^lua/moonpool/lib/(cluster_counts|cluster_jobs|cluster_nodes|cluster_operation|cluster_report|cluster_server|cron|exec|fs|lease|metrics|postgres|postgres_values|redis|redis_commands|server_url|sqlite|store|store_redis|zone)\
|/access/auth/(api_keys|bearer|claims|introspection|jwt|options|proxy|tls)|/runtime/(cached_file|canonical|characters|has|hint_errors|hint_names|lock_file|paths|single_flight|without_nulls)\
|/registry/(describe|explain|hint|lint|open_blocks|reload_diff)|/schema/meta|/methods/(approvals|operator)|/tasks/shared_tasks|/things/(limit|listening|resource_contents)|/protocol/complete")
set(moonpool_texts "^lua/moonpool/((workbench|specs|replay|cluster|sign_in)/|lib/(cluster_|postgres|redis|sqlite|zone|cron|lease|store_redis|server_url)|registry/|methods/)")
# The largest of those that each start loads: compressed as well, for the size of the binary. It costs a Lua state 60,000 instructions for
# each KB that is saved.
set(moonpool_large "^lua/moonpool/(access/(auth/init|principal)|calls/client_request|registry/(loader|sandbox)|tasks/tasks|things/(job|policy|type_builder))\\.lua$")
# The module whose bytes the compressed ones are compressed with: each start loads it, so it is not among them.
set(moonpool_dictionary lua/moonpool/registry/registry.lua)
set(embed_lua ${CMAKE_CURRENT_LIST_DIR}/embed.lua)

function(moonpool_embed result)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/lua/moonpool/*.lua)
    list(SORT files)
    set(packed ${files})
    list(FILTER packed INCLUDE REGEX "${moonpool_packed}")
    list(FILTER packed EXCLUDE REGEX "/upstream/(config|hops)\\.lua$") # each start looks whether there are upstreams
    list(REMOVE_ITEM files ${packed})
    add_executable(pack ${CMAKE_SOURCE_DIR}/cmake/pack.c)
    target_link_libraries(pack PRIVATE ZLIB::ZLIB)
    set(dictionary ${CMAKE_BINARY_DIR}/compiled/${moonpool_dictionary}c)
    foreach(file IN LISTS files packed) # the compressed ones lie together, so their pages stay out of memory until one is loaded
        string(REGEX REPLACE "^lua/" "" module ${file})
        string(REGEX REPLACE "(/init)?\\.lua$" "" module ${module})
        string(REPLACE "/" "." module ${module})
        set(compiled ${CMAKE_BINARY_DIR}/compiled/${file}c)
        get_filename_component(folder ${compiled} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        set(form 0)
        set(pack "")
        set(needs ${file} ${embed_lua})
        if(file IN_LIST packed AND file MATCHES "${moonpool_texts}")
            set(form 1)
            moonpool_gzip(${compiled} ${compiled} gzip)
            set(pack text ${gzip})
        elseif(file IN_LIST packed OR file MATCHES "${moonpool_large}")
            set(form 2)
            set(pack COMMAND pack ${dictionary} ${compiled} ${compiled})
            list(APPEND needs ${dictionary} pack)
        endif()
        add_custom_command(OUTPUT ${compiled} COMMAND ${LUA} ${embed_lua} ${file} ${compiled} ${pack} DEPENDS ${needs}
                           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM)
        moonpool_table_row(mp_embedded ${compiled} ${form} ${module} ${file})
    endforeach()

    # Files that are printed as they are. `require` finds no name with a '/'.
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/compiled/lua/types)
    foreach(file lua/types/moonpool.d.lua lua/types/moonpool_spec.d.lua)
        set(packed ${CMAKE_BINARY_DIR}/compiled/${file}.gz)
        moonpool_gzip(${CMAKE_SOURCE_DIR}/${file} ${packed} gzip)
        add_custom_command(OUTPUT ${packed} ${gzip} DEPENDS ${file} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM)
        moonpool_table_row(mp_embedded ${packed} 1 /${file} ${file})
    endforeach()
    moonpool_table_write(mp_embedded mp_embedded_count compiled out)
    set(${result} ${out} PARENT_SCOPE)
endfunction()
