/* traces.c: the configuration of spans. */
#include "traces.h"

/* Lines "name: value"; the caller frees each and the list. */
static char **lines_of(const mp_pair *MP_NULLABLE pairs)
{
    char **lines = mp_new((mp_pairs_count(pairs) + 1) * sizeof *lines), **next = lines;
    for (const mp_pair *pair = pairs; pair != NULL && pair->name != NULL; pair++) {
        mp_scoped_buf line = {0};
        mp_buf_printf(&line, "%s: %s", pair->name, pair->value);
        *next++ = mp_dup(mp_buf_str(&line));
    }
    return lines;
}

int mp_traces_use(const mp_config *config, mp_err *err)
{
    const mp_config_traces *from = &config->traces;
    char **headers = lines_of(from->headers);
    const char **attributes = mp_new((2 * mp_pairs_count(from->attributes) + 1) * sizeof *attributes),
               **next = attributes;
    for (const mp_pair *pair = from->attributes; pair != NULL && pair->name != NULL; pair++) {
        *next++ = pair->name;
        *next++ = pair->value;
    }
    mp_trace_config to = {.otlp = from->otlp,
                          .headers = (const char *const *)headers,
                          .service = config->lib.server_name,
                          .attributes = attributes,
                          .ca = config->client.ca,
                          .ratio = strtod(from->ratio, NULL),
                          .takes_errors = from->takes_errors == MP_TAKES_ERRORS_TRUE,
                          .slower_ms = from->slower_ms,
                          .accepts_parents = from->refuses_parents == MP_PARENTS_ACCEPTED,
                          .hides_addresses = from->addresses == MP_ADDRESSES_HIDDEN};
    int result = mp_traces_configure(&to, err);
    for (char **line = headers; *line != NULL; line++)
        free(*line);
    free(headers);
    free(attributes);
    return result;
}
