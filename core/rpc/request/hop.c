/* hop.c: the header moonpool-hop, as it is sealed and read. */
#include "hop.h"

#define PURPOSE "hop 1"
#define TEXTS 6

const char *const mp_hop_paths[MP_HOP_ENDPOINTS] = {"/-/mcp", "/-/sse", "/-/messages", "/-/task-messages", "/-/switch"};

/* x86-64 and arm64 have the same layout of it. */
typedef struct {
    uint64_t sent_ms, mark, body;
    uint32_t lengths[TEXTS];
    uint16_t to;
    uint8_t endpoint, hops;
} head;

uint64_t mp_hop_now_ms(const mp_nodes *MP_NULLABLE nodes)
{
    return nodes == NULL ? mp_clock_ms(CLOCK_BOOTTIME)
                         : (uint64_t)((int64_t)mp_clock_ms(CLOCK_REALTIME) - mp_nodes_ahead_ms(nodes));
}

/* The purpose of the seal: a header for one process of another node is none for any other process. */
static mp_str purpose_of(const mp_hop *hop, char room[sizeof PURPOSE + MP_NODE_UID + 1])
{
    snprintf(room, sizeof PURPOSE + MP_NODE_UID + 1, PURPOSE "%s%s", *hop->uid == '\0' ? "" : " ", hop->uid);
    return mp_str_of(room);
}

void mp_hop_keys(const mp_processes *processes, mp_seal_key keys[2])
{
    mp_seal_key_make(&keys[0], (mp_str){(const char *)mp_processes_key(processes), MP_PROCESS_KEY});
    keys[1] = (mp_seal_key){0};
}

/* Erases text that is or was sealed: it has the client's token. */
static void wipe_text(mp_buf *text)
{
    if (text->ptr != NULL)
        explicit_bzero(text->ptr, text->len);
    mp_buf_clear(text);
}

bool mp_hop_write(const mp_seal_key *keys, const mp_hop *hop, mp_buf *out)
{
    const mp_str texts[TEXTS] = {hop->method, hop->session,   hop->address,
                                 hop->base,   hop->principal, hop->authorization};
    head first = {.sent_ms = hop->sent_ms,
                  .mark = hop->mark,
                  .body = hop->body,
                  .to = hop->to,
                  .endpoint = (uint8_t)hop->endpoint,
                  .hops = (uint8_t)hop->hops};
    mp_buf text = {0};
    char purpose[sizeof PURPOSE + MP_NODE_UID + 1];
    for (int i = 0; i < TEXTS; i++)
        first.lengths[i] = (uint32_t)texts[i].len;
    mp_buf_put(&text, (mp_str){(const char *)&first, sizeof first});
    for (int i = 0; i < TEXTS; i++)
        mp_buf_put(&text, texts[i]);
    size_t len = text.len + MP_SEAL_OVERHEAD;
    unsigned char *sealed = mp_new(len);
    bool is_done = mp_seal(&keys[0], purpose_of(hop, purpose), mp_buf_str(&text), false, sealed);
    if (is_done) {
        char *value = mp_new(len * 4 / 3 + 4);
        mp_buf_printf(out, "%s%s", hop->uid, *hop->uid == '\0' ? "" : ".");
        mp_buf_put(out, (mp_str){value, mp_base64url_encode(value, (mp_str){(const char *)sealed, len})});
        free(value);
    }
    free(sealed);
    wipe_text(&text);
    return is_done;
}

/* Takes the texts that follow the head. False if they are not as long as the head says. */
static bool take_texts(const head *first, mp_str rest, mp_hop *hop)
{
    mp_str *const texts[TEXTS] = {&hop->method, &hop->session,   &hop->address,
                                  &hop->base,   &hop->principal, &hop->authorization};
    for (int i = 0; i < TEXTS; i++) {
        size_t len = first->lengths[i];
        if (len > rest.len)
            return false;
        *texts[i] = (mp_str){rest.ptr, len};
        rest = mp_str_from(rest, len);
    }
    return rest.len == 0;
}

bool mp_hop_read(const mp_seal_key *keys, mp_str value, mp_hop *hop)
{
    *hop = (mp_hop){0};
    head first;
    char purpose[sizeof PURPOSE + MP_NODE_UID + 1];
    if (value.len > MP_NODE_UID && value.ptr[MP_NODE_UID] == '.') {
        memcpy(hop->uid, value.ptr, MP_NODE_UID);
        value = mp_str_from(value, MP_NODE_UID + 1);
    }
    if (value.len == 0 || value.len > MP_HOP_MOST_HEADER)
        return false;
    unsigned char *sealed = mp_new(value.len), *text = mp_new(value.len);
    ptrdiff_t len = mp_base64url_decode(sealed, value);
    len = len < 0 ? -1 : mp_unseal(keys, purpose_of(hop, purpose), (mp_str){(const char *)sealed, (size_t)len}, text);
    bool is_good = len >= (ptrdiff_t)sizeof first;
    if (is_good) {
        memcpy(&first, text, sizeof first);
        mp_buf_put(&hop->room, (mp_str){(const char *)text, (size_t)len});
        hop->to = first.to;
        hop->endpoint = first.endpoint;
        hop->hops = first.hops;
        hop->sent_ms = first.sent_ms;
        hop->mark = first.mark;
        hop->body = first.body;
        is_good = first.endpoint < MP_HOP_ENDPOINTS && first.hops > 0 &&
                  take_texts(&first, mp_str_from(mp_buf_str(&hop->room), sizeof first), hop);
    }
    free(sealed);
    explicit_bzero(text, value.len);
    free(text);
    return is_good;
}

void mp_hop_free(mp_hop *hop)
{
    wipe_text(&hop->room);
    free(hop);
}
