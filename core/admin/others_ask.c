#include "others.h"
#include "json/json.h"

mp_transfer *MP_NULLABLE mp_others_ask(mp_admin *admin, uint16_t number, const mp_outgoing *how,
                                       const mp_others_question *question)
{
    char path[MP_PROCESS_PATH], asker[64];
    mp_scoped_buf url = {0}, caller = {0};
    mp_url parsed;
    mp_err err = {0};
    mp_processes *processes = mp_admin_gateway_of(admin)->processes;
    if (!mp_processes_path(processes, number, "admin", path))
        return NULL;
    snprintf(asker, sizeof asker, MP_OTHERS_ASKER ": %u", mp_processes_number(processes));
    mp_buf_printf(&url, "http://localhost%.*s%c", MP_STR_ARG(question->target), '\0');
    mp_buf_printf(&caller, "moonpool-caller: %.*s%c", MP_STR_ARG(question->caller), '\0');
    const char *headers[] = {caller.ptr, question->is_open ? "accept: application/openmetrics-text" : "accept: */*",
                             "content-type: application/json", question->is_whole ? NULL : asker, NULL};
    mp_outgoing outgoing = *how;
    mp_transfer *transfer = NULL;
    if (mp_url_parse(&parsed, url.ptr, NULL, &err) == 0) {
        outgoing.url = parsed.text;
        outgoing.headers = headers;
        outgoing.most = outgoing.most == 0 ? MP_OTHERS_ANSWER : outgoing.most;
        outgoing.unix_path = path;
        transfer = mp_transfer_start(mp_others_client(admin), &outgoing, &err);
        mp_url_clear(&parsed);
    }
    return transfer;
}

int mp_others_pid(mp_str name, mp_str *own_name)
{
    mp_str rest = name, first = mp_str_cut(&rest, '-');
    int64_t pid;
    bool is_long = rest.len > 0 && memchr(rest.ptr, '-', rest.len) != NULL;
    if (!is_long || !mp_json_int(first, &pid) || pid <= 0 || pid > INT32_MAX)
        return 0;
    *own_name = rest;
    return (int)pid;
}

bool mp_others_is_other(mp_admin *admin, const mp_stream *stream)
{
    int64_t number;
    mp_str asker = mp_stream_header(stream, MP_OTHERS_ASKER, NULL);
    return mp_stream_is_unix(stream) && mp_json_int(asker, &number) &&
           number != mp_processes_number(mp_admin_gateway_of(admin)->processes);
}
