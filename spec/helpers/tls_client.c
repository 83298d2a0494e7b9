/* tls_client.c: the client's side of TLS for specs, without a socket: bytes in, bytes out.
 *   local s = tls_client.new { name =, ca =, certificate =, key =, alpn =, max = "1.2" }    (paths of files)
 *   plain, state, why = s:feed(bytes)    state: "shaking", "open", "closed" (by the peer), "failed"
 *   s:write(plain)  s:goodbye()  bytes = s:take()  s:facts()  s:resume(other) */
#include <lauxlib.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

#define TYPE "tls_client"
#define EXPORT __attribute__((visibility("default")))

typedef struct {
    SSL_CTX *context;
    SSL *ssl;
    SSL_SESSION *session;
} client;

static int on_session(SSL *ssl, SSL_SESSION *session)
{
    client *c = SSL_get_app_data(ssl);
    SSL_SESSION_free(c->session);
    c->session = session;
    return 1;
}

static client *check(lua_State *L)
{
    return luaL_checkudata(L, 1, TYPE);
}

static const char *option(lua_State *L, const char *name)
{
    lua_getfield(L, 1, name);
    return lua_tostring(L, -1); /* the Lua table keeps a reference to the string */
}

static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());
    return text == NULL ? "no reason" : text;
}

static int l_new(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    client *c = lua_newuserdatauv(L, sizeof *c, 0);
    memset(c, 0, sizeof *c);
    luaL_setmetatable(L, TYPE);
    ERR_clear_error();
    c->context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_session_cache_mode(c->context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(c->context, on_session);
    const char *text = option(L, "max");
    if (text != NULL && strcmp(text, "1.1") == 0) { /* OpenSSL 3.5 offers it at no other level */
        SSL_CTX_set_security_level(c->context, 0);
        SSL_CTX_set_min_proto_version(c->context, TLS1_1_VERSION);
    }
    if (text != NULL)
        SSL_CTX_set_max_proto_version(c->context, strcmp(text, "1.3") == 0   ? TLS1_3_VERSION
                                                  : strcmp(text, "1.2") == 0 ? TLS1_2_VERSION
                                                                             : TLS1_1_VERSION);
    if ((text = option(L, "ca")) != NULL) {
        if (SSL_CTX_load_verify_locations(c->context, text, NULL) != 1)
            return luaL_error(L, "%s: %s", text, reason());
        SSL_CTX_set_verify(c->context, SSL_VERIFY_PEER, NULL);
    }
    if ((text = option(L, "certificate")) != NULL && SSL_CTX_use_certificate_chain_file(c->context, text) != 1)
        return luaL_error(L, "%s: %s", text, reason());
    if ((text = option(L, "key")) != NULL && SSL_CTX_use_PrivateKey_file(c->context, text, SSL_FILETYPE_PEM) != 1)
        return luaL_error(L, "%s: %s", text, reason());
    c->ssl = SSL_new(c->context);
    SSL_set_app_data(c->ssl, c);
    SSL_set_bio(c->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(c->ssl);
    if ((text = option(L, "name")) != NULL) {
        SSL_set_tlsext_host_name(c->ssl, text);
        SSL_set1_host(c->ssl, text);
    }
    if ((text = option(L, "alpn")) != NULL) {
        unsigned char list[256];
        size_t len = strlen(text);
        list[0] = (unsigned char)len;
        memcpy(list + 1, text, len);
        SSL_set_alpn_protos(c->ssl, list, (unsigned)len + 1);
    }
    lua_settop(L, 2);
    return 1;
}

static int l_feed(lua_State *L)
{
    client *c = check(L);
    size_t len;
    const char *bytes = luaL_optlstring(L, 2, "", &len), *state = "open";
    luaL_Buffer plain;
    char buffer[16384];
    int got = 0;
    if (len > 0)
        BIO_write(SSL_get_rbio(c->ssl), bytes, (int)len);
    luaL_buffinit(L, &plain);
    ERR_clear_error();
    if (!SSL_is_init_finished(c->ssl)) {
        int shaken = SSL_do_handshake(c->ssl);
        if (shaken != 1) {
            luaL_pushresult(&plain);
            lua_pushstring(L, SSL_get_error(c->ssl, shaken) == SSL_ERROR_WANT_READ ? "shaking" : "failed");
            lua_pushstring(L, reason());
            return 3;
        }
    }
    while ((got = SSL_read(c->ssl, buffer, sizeof buffer)) > 0)
        luaL_addlstring(&plain, buffer, (size_t)got);
    int error = SSL_get_error(c->ssl, got);
    if (error == SSL_ERROR_ZERO_RETURN)
        state = "closed";
    else if (error != SSL_ERROR_WANT_READ)
        state = "failed";
    luaL_pushresult(&plain);
    lua_pushstring(L, state);
    lua_pushstring(L, reason());
    return 3;
}

static int l_write(lua_State *L)
{
    client *c = check(L);
    size_t len;
    const char *bytes = luaL_checklstring(L, 2, &len);
    if (len > 0 && SSL_write(c->ssl, bytes, (int)len) != (int)len)
        return luaL_error(L, "cannot write over TLS: %s", reason());
    return 0;
}

static int l_goodbye(lua_State *L)
{
    SSL_shutdown(check(L)->ssl);
    return 0;
}

static int l_take(lua_State *L)
{
    client *c = check(L);
    char *bytes;
    long len = BIO_get_mem_data(SSL_get_wbio(c->ssl), &bytes);
    lua_pushlstring(L, bytes, (size_t)len);
    BIO_reset(SSL_get_wbio(c->ssl));
    return 1;
}

static int l_facts(lua_State *L)
{
    client *c = check(L);
    const unsigned char *protocol;
    unsigned protocol_len, digest_len = 0;
    unsigned char digest[EVP_MAX_MD_SIZE];
    lua_newtable(L);
    lua_pushstring(L, SSL_get_version(c->ssl));
    lua_setfield(L, -2, "version");
    lua_pushstring(L, SSL_get_cipher_name(c->ssl));
    lua_setfield(L, -2, "cipher");
    lua_pushboolean(L, SSL_session_reused(c->ssl));
    lua_setfield(L, -2, "resumed");
    SSL_get0_alpn_selected(c->ssl, &protocol, &protocol_len);
    lua_pushlstring(L, (const char *)protocol, protocol_len);
    lua_setfield(L, -2, "alpn");
    X509 *own = SSL_get0_peer_certificate(c->ssl);
    if (own != NULL)
        X509_digest(own, EVP_sha256(), digest, &digest_len);
    luaL_Buffer hex;
    luaL_buffinit(L, &hex);
    for (unsigned i = 0; i < digest_len; i++) {
        luaL_addchar(&hex, "0123456789abcdef"[digest[i] >> 4]);
        luaL_addchar(&hex, "0123456789abcdef"[digest[i] & 15]);
    }
    luaL_pushresult(&hex);
    lua_setfield(L, -2, "fingerprint");
    return 1;
}

/* Before the handshake: resumes the TLS session of another connection. */
static int l_resume(lua_State *L)
{
    client *other = luaL_checkudata(L, 2, TYPE);
    SSL_SESSION *copy =
        other->session == NULL
            ? NULL
            : SSL_SESSION_dup(other->session); /* OpenSSL invalidates the session of a connection that ends badly */
    lua_pushboolean(L, copy != NULL && SSL_set_session(check(L)->ssl, copy) == 1);
    SSL_SESSION_free(copy);
    return 1;
}

static int l_free(lua_State *L)
{
    client *c = check(L);
    SSL_SESSION_free(c->session);
    SSL_free(c->ssl);
    SSL_CTX_free(c->context);
    *c = (client){0};
    return 0;
}

EXPORT int luaopen_tls_client(lua_State *L);
int luaopen_tls_client(lua_State *L)
{
    static const luaL_Reg methods[] = {{"feed", l_feed}, {"write", l_write}, {"goodbye", l_goodbye},
                                       {"take", l_take}, {"facts", l_facts}, {"resume", l_resume},
                                       {NULL, NULL}};
    luaL_newmetatable(L, TYPE);
    lua_pushcfunction(L, l_free);
    lua_setfield(L, -2, "__gc");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushcfunction(L, l_new);
    lua_setfield(L, -2, "new");
    return 1;
}
