# dependencies.cmake: the static libraries h2o, lua and sqlite, from the sources of dependencies.txt; and `linked`, the table that
# `moonpool --version --all` prints (core/gateway/libraries.c).

file(STRINGS ${CMAKE_SOURCE_DIR}/cmake/dependencies.txt rows REGEX "^[a-z]")
file(GLOB_RECURSE fixes CONFIGURE_DEPENDS cmake/patches/*.patch)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS cmake/dependencies.txt cmake/sources.sh ${fixes})

# moonpool_sources(LIBRARY): sets LIBRARY_SOURCE, the folder of the patched sources, and adds the library to the table.
macro(moonpool_sources library)
    execute_process(COMMAND ${CMAKE_SOURCE_DIR}/cmake/sources.sh ${library} OUTPUT_VARIABLE ${library}_SOURCE
                    OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "The sources of ${library} are missing; the lines above say why")
    endif()
    set(row ${rows})
    list(FILTER row INCLUDE REGEX "^${library} ")
    string(REGEX MATCH "^[^ ]+ +([^ ]+)" row "${row}")
    set(version ${CMAKE_MATCH_1})
    set(own ${fixes})
    list(FILTER own INCLUDE REGEX "/patches/${library}/")
    list(LENGTH own count)
    string(APPEND linked "LINKED(\"${library}\", \"${version}\", ${count})\n")
endmacro()

# The object files of a target's sources in the build folder MOONPOOL_OBJECTS.
function(moonpool_objects result target)
    set(objects "")
    foreach(source ${ARGN})
        foreach(top ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}) # the second is a folder of the first
            cmake_path(IS_PREFIX top ${source} is_below)
            if(is_below)
                file(RELATIVE_PATH path ${top} ${source})
            endif()
        endforeach()
        list(APPEND objects ${MOONPOOL_OBJECTS}/CMakeFiles/${target}.dir/${path}.o)
    endforeach()
    set(${result} ${objects} PARENT_SCOPE)
endfunction()

# How all of them are compiled: not with our warnings; as part of an executable, or of modules.so as well.
macro(moonpool_library library)
    set(parts ${ARGN})
    if(MOONPOOL_OBJECTS)
        moonpool_objects(parts ${library} ${parts})
    endif()
    add_library(${library} STATIC ${parts})
    set_target_properties(${library} PROPERTIES LINKER_LANGUAGE C)
    target_compile_options(${library} PRIVATE -w -O2 -ffunction-sections -fdata-sections -fstack-protector-strong -fno-strict-aliasing)
    if(MOONPOOL_MODULES)
        set_target_properties(${library} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    else()
        target_compile_options(${library} PRIVATE -fPIE)
    endif()
    set_target_properties(${library} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
    # It frees under our feet, and we under its. Lua's memory is in pages of ours, of which AddressSanitizer knows nothing.
    if(MOONPOOL_SANITIZE MATCHES address AND NOT "${library}" STREQUAL "lua")
        target_compile_options(${library} PRIVATE -fsanitize=address -fno-omit-frame-pointer)
    endif()
endmacro()

# -- libh2o: its server; the linker drops what of it is not used ------------------------

moonpool_sources(h2o)
file(GLOB h2o_files ${h2o_SOURCE}/lib/common/*.c ${h2o_SOURCE}/lib/core/*.c ${h2o_SOURCE}/lib/http2/*.c
     ${h2o_SOURCE}/deps/libyrmcds/*.c)
list(FILTER h2o_files EXCLUDE REGEX "/deps/libyrmcds/(main|.*test.*|yc.*)\\.c$")
foreach(file lib/http1 lib/tunnel lib/handler/chunked lib/handler/headers_util lib/handler/mimemap deps/picohttpparser/picohttpparser deps/cloexec/cloexec)
    list(APPEND h2o_files ${h2o_SOURCE}/${file}.c)
endforeach()
moonpool_library(h2o ${h2o_files})
target_include_directories(h2o SYSTEM PUBLIC ${h2o_SOURCE}/include ${h2o_SOURCE}/deps/klib ${h2o_SOURCE}/deps/picohttpparser)
target_include_directories(h2o PRIVATE ${h2o_SOURCE}/deps/cloexec ${h2o_SOURCE}/deps/golombset
                           ${h2o_SOURCE}/deps/yoml ${h2o_SOURCE}/deps/libgkc ${h2o_SOURCE}/deps/libyrmcds)
target_compile_definitions(h2o PUBLIC H2O_USE_LIBUV=0 PRIVATE _GNU_SOURCE)
target_link_libraries(h2o PUBLIC OpenSSL::SSL OpenSSL::Crypto ZLIB::ZLIB Threads::Threads)

# -- Lua: libraries of C that scripts load find its functions in the executable (lua-cjson) ---------------------------------------

moonpool_sources(lua)
file(GLOB lua_files ${lua_SOURCE}/src/l*.c)
list(FILTER lua_files EXCLUDE REGEX "/luac?\\.c$")
moonpool_library(lua ${lua_files})
target_include_directories(lua SYSTEM PUBLIC ${lua_SOURCE}/src)
set(lua_places /usr/local/share/lua/5.4 /usr/local/lib/lua/5.4 /usr/share/lua/5.4) # the places of Debian's Lua
foreach(place ${lua_places})
    string(APPEND lua_path "${place}/?.lua\\;${place}/?/init.lua\\;")
endforeach()
target_compile_definitions(lua PRIVATE LUA_USE_LINUX LUA_COMPAT_5_3 "LUA_PATH_DEFAULT=\"${lua_path}./?.lua\\;./?/init.lua\""
    "LUA_CPATH_DEFAULT=\"/usr/local/lib/lua/5.4/?.so\\;/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/lua/5.4/?.so\\;/usr/lib/lua/5.4/?.so\\;./?.so\"")
target_link_libraries(lua PUBLIC m ${CMAKE_DL_LIBS})

# ThreadSanitizer keeps a signal back until its thread calls a function that it watches, and a loop of Lua, or of one of its libraries, may call none. It does not watch _longjmp: each
# yield would add to what it takes for the stack.
if(MOONPOOL_SANITIZE MATCHES thread)
    target_sources(lua PRIVATE ${CMAKE_SOURCE_DIR}/spec/helpers/signals.c)
    target_compile_options(lua PRIVATE -fsanitize-coverage=trace-pc)
    target_compile_definitions(lua PRIVATE _longjmp=longjmp)
endif()

# -- SQLite: what Debian's has, without the loading of extensions -------------------------------------------------------------------

moonpool_sources(sqlite)
moonpool_library(sqlite ${sqlite_SOURCE}/sqlite3.c)
target_include_directories(sqlite SYSTEM PUBLIC ${sqlite_SOURCE})
target_compile_definitions(sqlite PRIVATE SQLITE_THREADSAFE=1 SQLITE_USE_URI=1 SQLITE_TEMP_STORE=1 SQLITE_SECURE_DELETE SQLITE_SOUNDEX
    SQLITE_ENABLE_COLUMN_METADATA SQLITE_ENABLE_DBSTAT_VTAB SQLITE_ENABLE_FTS3 SQLITE_ENABLE_FTS3_PARENTHESIS SQLITE_ENABLE_FTS4
    SQLITE_ENABLE_FTS5 SQLITE_ENABLE_MATH_FUNCTIONS SQLITE_ENABLE_RTREE SQLITE_ENABLE_UPDATE_DELETE_LIMIT SQLITE_LIKE_DOESNT_MATCH_BLOBS
    SQLITE_ALLOW_ROWID_IN_VIEW SQLITE_MAX_VARIABLE_NUMBER=250000 SQLITE_MAX_DEFAULT_PAGE_SIZE=32768 SQLITE_MAX_SCHEMA_RETRY=25
    SQLITE_STRICT_SUBTYPE=1 SQLITE_OMIT_LOOKASIDE SQLITE_OMIT_LOAD_EXTENSION HAVE_ISNAN HAVE_USLEEP HAVE_FDATASYNC HAVE_LOCALTIME_R)
target_link_libraries(sqlite PUBLIC m Threads::Threads)
