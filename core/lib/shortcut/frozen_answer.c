/* frozen_answer.c: keeps answers as bytes, and serves requests from them. */
#include "lib/shortcut/frozen_answer.h"
#include "lib/bindings.h"
#include "lib/fields.h"
#include "lib/shortcut/audit_line.h"
#include <lauxlib.h>

MP_COUNTER(calls_frozen, "calls_frozen", "", "", "lists and fixed texts answered from kept bytes, without Lua")
MP_COUNTER(answers_outdated, "answers_outdated", "", "",
           "answers made while a switch changed the lists: not kept as bytes")
MP_COUNTER(lists_changed, "lists_changed", "", "", "lists whose bytes differed from those served before")

#define MAX_ANSWER_BYTES (((size_t)1 << 20) + 4096) /* bytes of an answer: a page of 1 MiB and what is around it */
#define MAX_TABLE_BYTES ((size_t)4 << 20)           /* limit of the bytes of all stored answers of one VM */
#define MAX_PARAMS_BYTES 4096                       /* bytes of params; calls with longer params are served by Lua */
#define UNESCAPED_BYTES 512                         /* limit of the bytes of names and a URI after unescaping */
#define MAX_NAMES 16                                /* limit of the members of one object of the params */
#define MAX_DEPTH 8                                 /* limit of the nesting of objects and arrays in the params */

/* The methods whose params name no URI; the method after them has a URI in its params. */
static const mp_str list_methods[] = {
    {"tools/list", 10}, {"prompts/list", 12}, {"resources/list", 14}, {"resources/templates/list", 24}};
#define LIST_METHODS (sizeof list_methods / sizeof *list_methods)
static const mp_str read_method = {"resources/read", 14};

typedef struct {
    char *MP_NULLABLE bytes; /* NULL: no answer is kept */
    size_t len;
} frozen;

typedef struct {
    mp_node node;                          /* the URI of a resource */
    mp_thing_metrics *MP_NULLABLE metrics; /* NULL: reads of this answer are not counted per resource */
    frozen by_era[];
} frozen_resource;

struct mp_frozen_answers {
    size_t bytes;
    mp_map resources;
    frozen lists[]; /* LIST_METHODS for each era */
};

/* -- the table --------------------------------------------------------------------------------------------------- */

mp_frozen_answers *mp_frozen_answers_new(void)
{
    mp_frozen_answers *answers = mp_new(sizeof *answers + LIST_METHODS * mp_era_count * sizeof(frozen));
    mp_map_init(&answers->resources);
    return answers;
}

static void clear_answers(frozen *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(list[i].bytes);
        list[i] = (frozen){0};
    }
}

static void free_resource(mp_node *node, void *arg)
{
    frozen_resource *resource = mp_container(node, frozen_resource, node);
    mp_map_drop(arg, node);
    clear_answers(resource->by_era, mp_era_count);
    free(resource);
}

void mp_frozen_thaw(mp_frozen_answers *answers)
{
    clear_answers(answers->lists, LIST_METHODS * mp_era_count);
    mp_map_each(&answers->resources, free_resource, &answers->resources);
    answers->bytes = 0;
}

void mp_frozen_answers_free(mp_frozen_answers *answers)
{
    mp_frozen_thaw(answers);
    mp_map_clear(&answers->resources);
    free(answers);
}

static frozen *MP_NULLABLE list_place(mp_frozen_answers *answers, const mp_era *era, mp_str method)
{
    for (size_t i = 0; i < LIST_METHODS; i++)
        if (mp_str_eq(method, list_methods[i]))
            return &answers->lists[(size_t)(era - mp_eras) * LIST_METHODS + i];
    return NULL;
}

static void keep_answer(mp_frozen_answers *answers, frozen *place, mp_str bytes)
{
    if (place->bytes != NULL)
        return;
    place->bytes = mp_new(bytes.len + 1);
    memcpy(place->bytes, bytes.ptr, bytes.len);
    place->len = bytes.len;
    answers->bytes += bytes.len;
}

/* -- answers that were served before ------------------------------------------------------------------------------- */

/* The hash of each list when the process froze it last. A reload compares hashes to see whether it changed bytes that
 * clients cache. */
static pthread_mutex_t hashes_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *MP_NULLABLE hashes; /* LIST_METHODS for each era; 0: never frozen */

static uint64_t hash_of(mp_str bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes.len; i++)
        hash = (hash ^ (unsigned char)bytes.ptr[i]) * 0x100000001b3u;
    return hash | 1;
}

static void note_hash(size_t place, mp_str bytes)
{
    uint64_t hash = hash_of(bytes);
    MP_LOCKED(&hashes_lock);
    if (hashes == NULL)
        hashes = mp_new(LIST_METHODS * mp_era_count * sizeof *hashes);
    uint64_t *last = &hashes[place];
    if (*last != 0 && *last != hash)
        mp_stat_add(&mp_stat_lists_changed, 1);
    *last = hash;
}

/* -- for Lua ------------------------------------------------------------------------------------------------------- */

/* answers.freeze(generation, method, revision, uri, bytes[, metrics]): stores the result of a plain request; `uri` is
 * nil for a list, `metrics` what metrics.resource gave for the resource. Does nothing above the limits, nor if the
 * bytes were made from a snapshot that is no longer served. [-0, +0, throws] */
static int l_freeze(lua_State *L)
{
    mp_vm *vm = mp_vm_of(L);
    const mp_lib *lib = mp_lib_of(L);
    mp_frozen_answers *answers = lib->frozen;
    uint64_t generation = (uint64_t)luaL_checkinteger(L, 1);
    mp_str method = mp_check_str(L, 2), uri = mp_opt_str(L, 4), bytes = mp_check_str(L, 5);
    const mp_era *era = mp_era_find(mp_check_str(L, 3));
    if (generation != lib->snapshot_served) {
        mp_stat_add(&mp_stat_answers_outdated, 1);
        return 0;
    }
    if (era == NULL || lib->is_general || bytes.len > MAX_ANSWER_BYTES || bytes.len > mp_state_of(vm)->call_output ||
        uri.len > MAX_PARAMS_BYTES || answers->bytes + bytes.len > MAX_TABLE_BYTES)
        return 0;
    frozen *place = list_place(answers, era, method);
    if (place != NULL) {
        keep_answer(answers, place, bytes);
        note_hash((size_t)(place - answers->lists), bytes);
    } else if (mp_str_eq(method, read_method)) {
        bool is_new;
        size_t size = sizeof(frozen_resource) + mp_era_count * sizeof(frozen);
        frozen_resource *resource = mp_map_need(&answers->resources, uri, size, &is_new);
        answers->bytes += is_new ? size + uri.len : 0;
        resource->metrics = lua_touserdata(L, 6);
        keep_answer(answers, &resource->by_era[era - mp_eras], bytes);
    }
    return 0;
}

MP_LIBRARY(frozen_answers)
{
    static const luaL_Reg functions[] = {{"answers.freeze", l_freeze}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}

/* -- plain requests ------------------------------------------------------------------------------------------------ */

/* The members that plain params may have: `_meta` without a log level, and, for resources/read, `uri`. */
typedef struct {
    mp_json_cursor cursor;
    mp_str uri;
    bool has_uri;
    size_t used; /* length of the strings in `texts`, which are the unescaped texts of strings with escapes */
    char texts[UNESCAPED_BYTES];
} plain_params;

typedef enum { IN_PARAMS, IN_META, ELSEWHERE } where;

static bool read_object(plain_params *params, where place, int depth);

/* Unescapes a string. False if it is too long. */
static bool read_text(plain_params *params, mp_json_token token, mp_str *text)
{
    *text = token.span;
    if (!token.escaped)
        return true;
    if (token.span.len > UNESCAPED_BYTES - params->used)
        return false;
    char *to = params->texts + params->used;
    *text = (mp_str){to, mp_json_copy_string(to, (mp_str){token.span.ptr - 1, token.span.len + 2})};
    params->used += text->len;
    return true;
}

static bool read_value(plain_params *params, mp_json_token token, int depth)
{
    if (token.type == MP_JSON_T_OPEN_OBJECT)
        return read_object(params, ELSEWHERE, depth + 1);
    if (token.type != MP_JSON_T_OPEN_ARRAY)
        return token.type < MP_JSON_T_OPEN_ARRAY;
    if (depth == MAX_DEPTH)
        return false;
    while ((token = mp_json_next(&params->cursor)).type != MP_JSON_T_CLOSE_ARRAY)
        if (!read_value(params, token, depth + 1))
            return false;
    return true;
}

static bool read_params_member(plain_params *params, mp_str name, mp_json_token token, int depth)
{
    if (mp_str_is(name, "_meta"))
        return token.type == MP_JSON_T_OPEN_OBJECT && read_object(params, IN_META, depth + 1);
    return mp_str_is(name, "uri") && token.type == MP_JSON_T_STRING &&
           (params->has_uri = read_text(params, token, &params->uri));
}

/* Reads an object after its brace. False if the object must be read by Lua: another member, a repeated name (which
 * is refused), too many names. */
static bool read_object(plain_params *params, where place, int depth)
{
    mp_str names[MAX_NAMES];
    int count = 0;
    mp_json_token token;
    if (depth > MAX_DEPTH)
        return false;
    while ((token = mp_json_next(&params->cursor)).type != MP_JSON_T_CLOSE_OBJECT) {
        mp_str name;
        if (count == MAX_NAMES || token.type != MP_JSON_T_STRING || !read_text(params, token, &name))
            return false;
        for (int i = 0; i < count; i++)
            if (mp_str_eq(names[i], name))
                return false;
        names[count++] = name;
        if (place == IN_META && mp_str_is(name, "io.modelcontextprotocol/logLevel"))
            return false;
        token = mp_json_next(&params->cursor);
        if (!(place == IN_PARAMS ? read_params_member(params, name, token, depth) : read_value(params, token, depth)))
            return false;
    }
    return true;
}

/* True if the params, which a scan accepted, are plain, and name a URI exactly if the method needs one. `params`
 * gets the members. */
static bool are_plain(mp_str text, bool wants_uri, plain_params *params)
{
    params->cursor = (mp_json_cursor){text.ptr, text.ptr + text.len};
    params->has_uri = false;
    params->used = 0;
    if (text.len > MAX_PARAMS_BYTES)
        return false;
    if (text.len > 0 &&
        (mp_json_next(&params->cursor).type != MP_JSON_T_OPEN_OBJECT || !read_object(params, IN_PARAMS, 0)))
        return false;
    return params->has_uri == wants_uri;
}

/* -- answering ----------------------------------------------------------------------------------------------------- */

/* Finds the kept answer for a request. `*read` gets the resource that it reads; it is unchanged for a list. */
static mp_general find_answer(const mp_plain *it, const frozen **found, const frozen_resource **read)
{
    mp_frozen_answers *answers = it->lib->frozen;
    plain_params params;
    mp_str method = mp_call_method(it->call);
    const frozen *place = list_place(answers, it->era, method);
    bool is_list = place != NULL;
    if (mp_call_is_of_gateway(it->call))
        return MP_GENERAL_HOPS;
    if (mp_call_weight(it->call) > mp_state_of(it->lib->vm)->call_memory)
        return MP_GENERAL_LENGTH;
    if (it->session != NULL && it->lib->has_private)
        return MP_GENERAL_RIGHTS; /* each request of a session must reach Lua (access.subscribe_as) */
    if (is_list ? place->bytes == NULL : answers->resources.count == 0 || !mp_str_eq(method, read_method))
        return MP_GENERAL_NOT_KEPT;
    if (!are_plain(mp_call_params(it->call), !is_list, &params))
        return MP_GENERAL_MESSAGE;
    if (!is_list) {
        mp_node *node = mp_map_find(&answers->resources, params.uri);
        if (node == NULL)
            return MP_GENERAL_NOT_KEPT;
        *read = mp_container(node, frozen_resource, node);
        place = &(*read)->by_era[it->place];
    }
    *found = place;
    return place->bytes == NULL ? MP_GENERAL_NOT_KEPT : MP_PLAIN;
}

mp_general mp_frozen_answer(mp_lib *lib, mp_call *call)
{
    const frozen_resource *read = NULL;
    const frozen *found;
    mp_plain it;
    mp_general why = lib->is_proven ? MP_GENERAL_MODE : mp_shortcut_ask(lib, call, &it);
    if (why == MP_PLAIN)
        why = find_answer(&it, &found, &read);
    if (why != MP_PLAIN)
        return why;
    mp_stat_add(&mp_stat_calls_frozen, 1);
    if (lib->audit != MP_AUDIT_MODE_OFF) {
        mp_audit_line line = {0};
        mp_audit_begin_plain(&line, lib, call, read == NULL ? MP_STR_NONE : read->node.key);
        mp_audit_end(&line, &(mp_audit_outcome){.outcome = "ok"});
    }
    if (read != NULL && read->metrics != NULL)
        mp_call_measure(call, read->metrics);
    mp_call_answer(call, (mp_str){found->bytes, found->len});
    return MP_PLAIN;
}

void mp_frozen_compare(mp_lib *lib, mp_call *call, mp_str result)
{
    const frozen_resource *read = NULL;
    const frozen *found;
    mp_plain it;
    if (!lib->is_proven || mp_shortcut_ask(lib, call, &it) != MP_PLAIN || find_answer(&it, &found, &read) != MP_PLAIN ||
        mp_str_eq(result, (mp_str){found->bytes, found->len}))
        return;
    fprintf(stderr, "frozen answer differs\n  frozen %.*s\n  Lua    %.*s\n", (int)found->len, found->bytes,
            (int)result.len, result.ptr);
    abort();
}
