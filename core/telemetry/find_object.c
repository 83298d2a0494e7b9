/* find_object.c: for the portable binary. crash.c and gcc's unwinder, which it uses, ask for the object of an address
 * by a function that glibc has from 2.35 on. The linker gives them this one instead (--wrap, see CMakeLists.txt);
 * libc's own is not replaced. It takes the loader's locks, so it may wait for ever if the loader crashes; then
 * on_late() of crash.c ends the process. */
#ifdef MP_PORTABLE
#define _GNU_SOURCE 1
#include "base/base.h"
#include <dlfcn.h>
#include <link.h>

int __wrap__dl_find_object(void *address, struct dl_find_object *result);

typedef struct {
    uintptr_t address;
    struct dl_find_object *result;
} search;

static int look_at_object(struct dl_phdr_info *info, MP_UNUSED size_t size, void *ctx)
{
    search *of = ctx;
    uintptr_t from = 0, to = 0;
    void *tables = NULL;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && of->address >= at && of->address < at + part->p_memsz)
            from = at, to = at + part->p_memsz;
        else if (part->p_type == PT_GNU_EH_FRAME)
            tables = (void *)at;
    }
    if (to == 0 || tables == NULL)
        return to != 0 ? -1 : 0;
    *of->result =
        (struct dl_find_object){.dlfo_map_start = (void *)from, .dlfo_map_end = (void *)to, .dlfo_eh_frame = tables};
    return 1;
}

/* 0 if the object with this address was found, like libc's. */
int __wrap__dl_find_object(void *address, struct dl_find_object *result)
{
    Dl_info info;
    struct link_map *map;
    search of = {.address = (uintptr_t)address, .result = result};
    if (dl_iterate_phdr(look_at_object, &of) != 1 || dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) == 0)
        return -1;
    result->dlfo_link_map = map;
    return 0;
}
#endif
