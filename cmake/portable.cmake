# portable.cmake: all libraries but libc and libm become parts of the binary, so that it runs on any Linux with glibc 2.34 or newer: Debian's
# static OpenSSL, zlib, libyaml and PCRE2, and libcurl from the sources of dependencies.txt. `./dev package portable` builds it in a root of
# Debian 12, whose glibc is 2.36: spec/gateway/cli/portable_spec.lua sees to it that nothing of 2.35 or 2.36 is used.

# The archives in place of the shared libraries that pkg-config names.
foreach(library YAML:yaml PCRE2:pcre2-8)
    string(REPLACE ":" ";" names ${library})
    list(GET names 0 target)
    list(GET names 1 name)
    find_library(static_${name} NAMES lib${name}.a REQUIRED)
    set_target_properties(PkgConfig::${target} PROPERTIES INTERFACE_LINK_LIBRARIES ${static_${name}})
endforeach()

# -- libcurl: HTTP/1.1 and TLS, and no more than core/net asks of it ------------------------------------------------------------------

moonpool_sources(curl)
foreach(option BUILD_CURL_EXE BUILD_SHARED_LIBS BUILD_TESTING BUILD_EXAMPLES BUILD_LIBCURL_DOCS BUILD_MISC_DOCS ENABLE_CURL_MANUAL PICKY_COMPILER
        CURL_ENABLE_EXPORT_TARGET CURL_USE_LIBPSL CURL_USE_LIBSSH2 CURL_BROTLI CURL_ZSTD USE_NGHTTP2 USE_LIBIDN2 HAVE_ARC4RANDOM)
    set(${option} OFF CACHE BOOL "libcurl" FORCE)
endforeach()
foreach(option BUILD_STATIC_LIBS HTTP_ONLY CURL_DISABLE_INSTALL CURL_USE_OPENSSL CURL_ZLIB)
    set(${option} ON CACHE BOOL "libcurl" FORCE)
endforeach()
foreach(part ALTSVC AWS BASIC_AUTH BEARER_AUTH COOKIES DIGEST_AUTH DOH FORM_API GETOPTIONS HEADERS_API HSTS IPFS KERBEROS_AUTH LIBCURL_OPTION MIME
        NEGOTIATE_AUTH NETRC NTLM SRP WEBSOCKETS)
    set(CURL_DISABLE_${part} ON CACHE BOOL "libcurl" FORCE)
endforeach()
foreach(place CURL_CA_BUNDLE CURL_CA_PATH) # core/net/curl/curl.c finds them
    set(${place} none CACHE STRING "libcurl" FORCE)
endforeach()
set(CMAKE_UNITY_BUILD ON) # its files in groups, which takes a third of the time
add_subdirectory(${curl_SOURCE} curl EXCLUDE_FROM_ALL)
set(CMAKE_UNITY_BUILD OFF)
target_compile_options(libcurl_static PRIVATE -w -ffunction-sections -fdata-sections -fstack-protector-strong -fPIE)
set_target_properties(libcurl_static PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
