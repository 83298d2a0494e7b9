/* auth.c: authentication: the `request` that auth scripts read, and their answer. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include "lib/principal.h"
#include "lib/work/token_cache.h"
#include <lauxlib.h>
#include <pthread.h>

#define MAX_HEADER_NAME_BYTES 128

static const char REQUEST[] = "request", HEADERS[] = "headers";

/* -- the request --------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *kind;
    mp_lib_task *task;
    uint64_t serial;
} handle;

enum { HEADERS_VALUE = 1, BEARER_VALUE, USER_VALUES = BEARER_VALUE };

/* The loop's time (ms); 0 before the VM is attached. */
static uint64_t now_of(const mp_vm *vm)
{
    mp_loop *loop = mp_state_of(vm)->loop;
    return loop == NULL ? 0 : mp_loop_now(loop);
}

/* [-0, +1, throws] */
static void push_handle(lua_State *L, mp_lib_task *task, const char *kind)
{
    handle *h = lua_newuserdatauv(L, sizeof *h, USER_VALUES);
    *h = (handle){kind, task, task->super.serial};
    luaL_setmetatable(L, kind);
}

static const mp_stream *check_stream(lua_State *L, const char *kind)
{
    const handle *h = lua_touserdata(L, 1); /* scripts cannot reach the metatables, so this check is enough */
    luaL_argexpected(L, h != NULL && lua_rawlen(L, 1) == sizeof *h && h->kind == kind, 1, kind);
    if (h->serial != h->task->super.serial || h->task->entry == NULL)
        luaL_error(L, "this request has ended: read its fields before the auth script returns");
    return mp_authn_stream(h->task->entry);
}

static void push_str(lua_State *L, mp_str s)
{
    lua_pushlstring(L, s.ptr == NULL ? "" : s.ptr, s.len);
}

/* The bearer token of the request at 1; the token is looked up once and then cached.  [-0, +1, throws] */
static void push_bearer(lua_State *L, const mp_stream *stream)
{
    mp_str token;
    if (lua_getiuservalue(L, 1, BEARER_VALUE) != LUA_TNIL)
        return;
    if (mp_find_bearer(stream, &token) != MP_A_TOKEN)
        return;
    mp_token_push(L, token);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, BEARER_VALUE);
}

/* The headers object of the request at 1, which is created once.  [-0, +1, throws] */
static void push_headers(lua_State *L)
{
    const handle *h = lua_touserdata(L, 1);
    if (lua_getiuservalue(L, 1, HEADERS_VALUE) != LUA_TNIL)
        return;
    push_handle(L, h->task, HEADERS);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, HEADERS_VALUE);
}

/* The client's certificate; nil without TLS, or if the client sent no certificate.  [-0, +1, throws] */
static void push_tls(lua_State *L, const mp_stream *stream)
{
    const mp_tls_peer *peer = mp_stream_tls(stream);
    if (peer == NULL || peer->subject == NULL) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 0, 6);
    mp_field_text(L, "subject", peer->subject);
    mp_field_text(L, "issuer", peer->issuer);
    mp_field_text(L, "serial", peer->serial);
    mp_field_text(L, "fingerprint", peer->fingerprint);
    mp_field_integer(L, "expires", peer->expires);
    lua_newtable(L);
    for (lua_Integer i = 0; peer->sans != NULL && peer->sans[i] != NULL; i++) {
        lua_pushstring(L, peer->sans[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "sans");
}

enum { METHOD = 1, PATH, HEADER_FIELD, BEARER, PEER, ADDRESS, TLS, QUERY, BODY };
static const char *const field_names[] = {"method",  "path", "headers", "bearer", "peer",
                                          "address", "tls",  "query",   "body",   NULL};

/* __index of a request. Upvalue: the fields' numbers.  [-2, +1, throws] */
static int l_request(lua_State *L)
{
    const mp_stream *stream = check_stream(L, REQUEST);
    lua_rawget(L, lua_upvalueindex(1));
    switch (lua_tointeger(L, -1)) {
    case METHOD:
        push_str(L, mp_stream_request(stream)->method);
        break;
    case PATH:
        push_str(L, mp_stream_request(stream)->path);
        break;
    case HEADER_FIELD:
        push_headers(L);
        break;
    case BEARER:
        push_bearer(L, stream);
        break;
    case PEER:
        push_str(L, mp_stream_peer(stream));
        break;
    case ADDRESS:
        push_str(L, mp_stream_address(stream));
        break;
    case TLS:
        push_tls(L, stream);
        break;
    case QUERY:
    case BODY: { /* of pages of sign-in alone: credentials are read from headers */
        const handle *h = lua_touserdata(L, 1);
        const mp_request *request = mp_stream_request(stream);
        bool is_page = h->task->entry != NULL && mp_authn_is_page(h->task->entry);
        push_str(L, !is_page ? MP_STR_NONE : lua_tointeger(L, -1) == QUERY ? request->query : request->body);
        break;
    }
    default:
        lua_pushnil(L);
    }
    return 1;
}

/* __index of the headers of a request. Names are matched without regard to case. Several headers of one name are joined
 * with ", ".  [-2, +1, throws] */
static int l_header(lua_State *L)
{
    const mp_stream *stream = check_stream(L, HEADERS);
    size_t len, at = 0;
    const char *given = luaL_checklstring(L, 2, &len);
    char name[MAX_HEADER_NAME_BYTES + 1];
    if (len > MAX_HEADER_NAME_BYTES)
        return 0;
    for (size_t i = 0; i <= len; i++)
        name[i] = (char)(given[i] >= 'A' && given[i] <= 'Z' ? given[i] - 'A' + 'a' : given[i]);
    if (strcmp(name, "host") == 0) { /* libh2o stores Host apart from the other headers */
        push_str(L, mp_stream_request(stream)->host);
        return 1;
    }
    int count = 0;
    for (mp_str value; (value = mp_stream_next_header(stream, name, &at)).ptr != NULL; count++) {
        if (count > 0)
            lua_pushliteral(L, ", ");
        luaL_checkstack(L, 4, "too many headers of one name");
        push_str(L, mp_str_trim(value));
    }
    if (count == 0)
        lua_pushnil(L);
    else if (count > 1)
        lua_concat(L, 2 * count - 1);
    return 1;
}

/* -- the answer ---------------------------------------------------------------------------------------------------- */

/* (registry reference of a principal reference, mp_principal **): refs the principal if it has not expired.  [-2, +0,
 * throws] */
static int ref_cached_principal(lua_State *L)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, *(const int *)lua_touserdata(L, 1));
    mp_principal **principal = lua_touserdata(L, 2);
    *principal = mp_principal_ref_valid(L, -1);
    return 0;
}

bool mp_authn_is_known(mp_vm *vm, mp_authn *entry)
{
    mp_str token;
    int cached_ref = LUA_NOREF;
    mp_principal *principal = NULL;
    if (mp_find_bearer(mp_authn_stream(entry), &token) == MP_A_TOKEN)
        cached_ref = mp_token_principal(vm, token, now_of(vm));
    if (cached_ref == LUA_NOREF)
        return false;
    lua_State *L = mp_state_of(vm)->L;
    lua_pushcfunction(L, ref_cached_principal);
    lua_pushlightuserdata(L, &cached_ref);
    lua_pushlightuserdata(L, &principal);
    if (lua_pcall(L, 2, 0, 0) != LUA_OK)
        lua_pop(L, 1); /* no memory: the authentication task will report it */
    if (principal == NULL)
        return false;
    mp_authn_admit(entry, principal);
    mp_principal_unref(principal);
    return true;
}

/* Handles the results of moonpool.authenticate: a principal reference and how many ms it may be cached for the bearer
 * token (0: not at all); or nil, HTTP status, message, and optionally the seconds of Retry-After and the reason for the
 * audit. */
static int entry_done(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    mp_lib_task *task = (mp_lib_task *)context;
    if (task->entry == NULL)
        return 0; /* the request was cancelled */
    if (!lua_isnil(L, 2)) {
        mp_str token;
        lua_Integer cached_ms = luaL_optinteger(L, 3, 0);
        if (cached_ms > 0 && mp_find_bearer(mp_authn_stream(task->entry), &token) == MP_A_TOKEN)
            mp_token_set_principal(L, token, 2, now_of(task->super.vm) + (uint64_t)cached_ms);
        mp_principal *principal = mp_principal_ref_at(L, 2);
        mp_authn *entry = mp_task_settle_entry(task);
        if (entry != NULL)
            mp_authn_admit(entry, principal);
        mp_principal_unref(principal);
        return 0;
    }
    mp_str message, reason, token;
    message.ptr = luaL_checklstring(L, 4, &message.len);
    reason.ptr = luaL_optlstring(L, 6, "", &reason.len);
    lua_Integer code = luaL_checkinteger(L, 3), retry = luaL_optinteger(L, 5, 0);
    mp_authn *entry = mp_task_settle_entry(task);
    if (entry == NULL)
        return 0;
    mp_refusal refusal = {.status = (int)code,
                          .has_token = mp_find_bearer(mp_authn_stream(entry), &token) != MP_NO_TOKEN,
                          .retry = (int)retry,
                          .message = message,
                          .reason = reason};
    mp_authn_refuse(entry, &refusal);
    return 0;
}

/* -- pages of sign-in ---------------------------------------------------------------------------------------------- */

/* The headers that a page may have: C keeps the names. */
static const char *const names[] = {"access-control-allow-headers",
                                    "access-control-allow-methods",
                                    "access-control-allow-origin",
                                    "allow",
                                    "cache-control",
                                    "content-security-policy",
                                    "location",
                                    "referrer-policy",
                                    "retry-after",
                                    "set-cookie",
                                    "vary",
                                    "www-authenticate",
                                    "x-content-type-options",
                                    "x-frame-options",
                                    NULL};

/* Reads the list of names and values at `index`; the texts stay in the table.  [-0, +0, throws] */
static void read_headers(lua_State *L, int index, mp_page *page)
{
    lua_Integer len = luaL_len(L, index);
    for (lua_Integer i = 1; i + 1 <= len && page->count < sizeof page->headers / sizeof *page->headers; i += 2) {
        lua_geti(L, index, i);
        lua_geti(L, index, i + 1);
        mp_header *header = &page->headers[page->count++];
        header->name = names[luaL_checkoption(L, -2, NULL, names)];
        header->value = mp_check_str(L, -1);
        luaL_argcheck(L,
                      memchr(header->value.ptr, '\n', header->value.len) == NULL &&
                          memchr(header->value.ptr, '\r', header->value.len) == NULL,
                      index, "a header has a line break");
        lua_pop(L, 2);
    }
}

/* Handles the results of moonpool.answer_page: status, media type, body, headers, and for the audit an event and a
 * reason. */
static int page_done(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    mp_lib_task *task = (mp_lib_task *)context;
    if (task->entry == NULL)
        return 0; /* the request was cancelled */
    mp_page page = {.status = (int)luaL_checkinteger(L, 2), .type = luaL_optstring(L, 3, NULL)};
    page.body = mp_check_str(L, 4);
    page.event = luaL_optstring(L, 6, NULL);
    page.reason.ptr = luaL_optlstring(L, 7, "", &page.reason.len);
    read_headers(L, 5, &page);
    mp_authn *entry = mp_task_settle_entry(task);
    if (entry != NULL)
        mp_authn_answer(entry, &page);
    return 0;
}

int mp_run_entry(lua_State *L)
{
    mp_lib_task *task = lua_touserdata(L, 1);
    if (task->entry == NULL)
        return 0;
    const mp_lib *lib = mp_lib_of_vm(task->super.vm);
    if (mp_authn_is_page(task->entry)) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, lib->answer_page);
        push_handle(L, task, REQUEST);
        lua_callk(L, 1, 6, (lua_KContext)task, page_done);
        return page_done(L, LUA_OK, (lua_KContext)task);
    }
    mp_str packed = mp_authn_packed(task->entry);
    lua_rawgeti(L, LUA_REGISTRYINDEX, packed.len > 0 ? lib->unpack : lib->authenticate);
    if (packed.len > 0)
        push_str(L, packed);
    else
        push_handle(L, task, REQUEST);
    lua_callk(L, 1, 5, (lua_KContext)task, entry_done);
    return entry_done(L, LUA_OK, (lua_KContext)task);
}

/* -- set-up ------------------------------------------------------------------------------------------------------- */

static mp_str copy_text(lua_State *L, int index, char **to)
{
    size_t len;
    const char *text = luaL_checklstring(L, index, &len);
    free(*to);
    *to = mp_dup((mp_str){text, len});
    return (mp_str){*to, len};
}

/* auth.enable(realm, scopes, metadata, has_pages): turns authentication on. The texts are those of the WWW-Authenticate
 * header and of the metadata. With `has_pages`, moonpool.answer_page answers the pages of sign-in.  [-0, +0, throws] */
static int l_set_auth(lua_State *L)
{
    mp_lib *lib = mp_lib_of(L);
    lib->auth.realm = copy_text(L, 1, &lib->auth_texts[0]);
    lib->auth.scopes = copy_text(L, 2, &lib->auth_texts[1]);
    lib->auth.resource_metadata = copy_text(L, 3, &lib->auth_texts[2]);
    lib->auth.is_asked = lib->has_auth;
    lib->auth.has_pages = lib->has_auth && lua_toboolean(L, 4);
    return 0;
}

MP_GAUGE(auth_files_unread, "auth_files_unread", "", "",
         "files of auth scripts that a worker has never been able to read: /readyz is 503 meanwhile")

void mp_lib_count_unread(mp_lib *lib, int64_t count)
{
    mp_stat_add(&mp_stat_auth_files_unread, count - lib->unread_files);
    lib->unread_files = count;
}

/* auth.count_unread(n): `n` files of auth scripts were never read by this VM.  [-0, +0, throws] */
static int l_count_unread(lua_State *L)
{
    mp_lib *lib = mp_lib_of(L);
    mp_lib_count_unread(lib, lib->has_auth ? luaL_checkinteger(L, 1) : 0);
    return 0;
}

/* -- files that were accepted -------------------------------------------------------------------------------------- */

MP_GAUGE(auth_files_bytes, "auth_files_bytes", "", "",
         "bytes of files of auth scripts that are kept, as they were accepted, for the time after a reload")

#define MAX_GOOD_FILES 64                 /* one more takes the place of the oldest */
#define MAX_GOOD_BYTES (16 * 1024 * 1024) /* of all; as long as one file that scripts can read. The oldest give way */

/* A file that a script names, with its text when it was accepted last. */
typedef struct {
    char *MP_NULLABLE path, *MP_NULLABLE text;
    size_t length;
} good_file;

/* They outlive the Lua states: after a reload the new ones begin with them while a file cannot be read. */
static struct {
    pthread_mutex_t lock; /* guards the members below */
    good_file list[MAX_GOOD_FILES];
    size_t next, bytes;
} good_files = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The caller holds the lock. */
static good_file *MP_NULLABLE find_good(const char *path)
{
    for (size_t i = 0; i < MAX_GOOD_FILES; i++)
        if (good_files.list[i].path != NULL && strcmp(good_files.list[i].path, path) == 0)
            return &good_files.list[i];
    return NULL;
}

/* The caller holds the lock. */
static void drop_good(good_file *it)
{
    mp_stat_add(&mp_stat_auth_files_bytes, -(int64_t)it->length);
    good_files.bytes -= it->length;
    free(it->path);
    free(it->text);
    *it = (good_file){0};
}

/* auth.keep_text(path, text): the file at `path` was accepted with this text.  [-0, +0, throws] */
static int l_keep_text(lua_State *L)
{
    mp_str text;
    const char *path = luaL_checkstring(L, 1);
    text.ptr = luaL_checklstring(L, 2, &text.len);
    if (text.len > MAX_GOOD_BYTES)
        return 0;
    MP_LOCKED(&good_files.lock);
    good_file *kept = find_good(path);
    if (kept == NULL) {
        kept = &good_files.list[good_files.next];
        good_files.next = (good_files.next + 1) % MAX_GOOD_FILES;
    }
    drop_good(kept);
    for (size_t i = 0; good_files.bytes + text.len > MAX_GOOD_BYTES; i++)
        drop_good(&good_files.list[(good_files.next + i) % MAX_GOOD_FILES]);
    *kept = (good_file){mp_dup(mp_str_of(path)), mp_dup(text), text.len};
    good_files.bytes += text.len;
    mp_stat_add(&mp_stat_auth_files_bytes, (int64_t)text.len);
    return 0;
}

/* auth.kept_text(path): the text with which the file at `path` was accepted last, by any Lua state; or nil.
 * [-0, +1, throws] */
static int l_kept_text(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    pthread_mutex_lock(&good_files.lock);
    const good_file *kept = find_good(path);
    size_t length = kept == NULL ? 0 : kept->length;
    pthread_mutex_unlock(&good_files.lock);
    if (length == 0)
        return 0;
    char *room = lua_newuserdatauv(L, length, 0); /* before the lock, since it may raise an error */
    pthread_mutex_lock(&good_files.lock);
    kept = find_good(path);
    bool is_same = kept != NULL && kept->length == length;
    if (is_same)
        memcpy(room, kept->text, length);
    pthread_mutex_unlock(&good_files.lock);
    if (!is_same)
        return 0; /* another state has accepted another text just now: the next look finds that */
    lua_pushlstring(L, room, length);
    return 1;
}

static void set_index(lua_State *L, const char *kind, lua_CFunction index, int upvalues)
{
    luaL_newmetatable(L, kind);
    if (upvalues > 0)
        lua_insert(L, -2);
    lua_pushcclosure(L, index, upvalues);
    lua_setfield(L, -2, "__index");
    mp_field_bool(L, "__metatable", false);
    lua_pop(L, 1);
}

MP_LIBRARY(auth)
{
    static const luaL_Reg functions[] = {{"auth.enable", l_set_auth},
                                         {"auth.count_unread", l_count_unread},
                                         {"auth.keep_text", l_keep_text},
                                         {"auth.kept_text", l_kept_text},
                                         {NULL, NULL}};
    mp_set_members(L, functions, 0);
    mp_lib_tokens(L);
    mp_lib_principals(L);
    lua_newtable(L);
    for (int i = 0; field_names[i] != NULL; i++)
        mp_field_integer(L, field_names[i], i + 1);
    set_index(L, REQUEST, l_request, 1);
    set_index(L, HEADERS, l_header, 0);
}
