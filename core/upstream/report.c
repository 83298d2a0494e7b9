/* report.c: some of the facts about an upstream in /status. */
#include "upstream/state.h"

void mp_upstream_report_class(mp_upstream_report *report, const char *name)
{
    for (size_t i = 0; i < MP_UPSTREAM_CLASSES; i++) {
        mp_upstream_class_count *one = &report->classes[i];
        if (one->channels == 0)
            snprintf(one->name, sizeof one->name, "%s", name);
        if (strcmp(one->name, name) == 0) {
            one->channels++;
            return;
        }
    }
}

void mp_upstream_note_pid(mp_upstream *upstream, int64_t before, int64_t now)
{
    if (before == now)
        return;
    MP_LOCKED(&upstream->lock);
    size_t at = 0;
    while (at < MP_UPSTREAM_PIDS && upstream->pids[at] != before)
        at++;
    if (at < MP_UPSTREAM_PIDS)
        upstream->pids[at] = now;
}

void mp_channel_classify(mp_channel *channel, mp_str name)
{
    MP_LOCKED(&channel->upstream->lock);
    snprintf(channel->class, sizeof channel->class, "%.*s", MP_STR_ARG(name));
}
