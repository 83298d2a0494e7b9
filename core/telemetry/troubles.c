#include "troubles.h"
#include "stats.h"
#include <string.h>

#define TROUBLE(id, event) MP_COUNTER(trouble_##id, "troubles", "event", event, "lines of the log: " event)
#include "troubles.def"
#undef TROUBLE

static const mp_stat *const troubles[] = {
#define TROUBLE(id, event) &mp_stat_trouble_##id,
#include "troubles.def"
#undef TROUBLE
};

void mp_trouble_count(const char *event)
{
    for (size_t i = 0; i < sizeof troubles / sizeof troubles[0]; i++)
        if (strcmp(troubles[i]->value, event) == 0)
            mp_stat_add(troubles[i], 1);
}
