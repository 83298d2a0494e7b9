/* store_mark.c: reads marks from the bytes of SQLite's files (https://www.sqlite.org/fileformat2.html), before SQLite
 * opens them. */
#include "data/store_mark.h"
#include <unistd.h>

#define WAL_HEADER 32
#define FRAME_HEADER 24
#define MAX_PAGE 65536

typedef struct {
    int fd;
    uint32_t page_size;
    uint8_t salts[8];   /* each frame of the generation repeats them */
    uint32_t mark_page; /* the page of the first frame */
    uint8_t page[MAX_PAGE];
} wal_reader;

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool read_at(int fd, void *into, size_t size, int64_t offset)
{
    return pread(fd, into, size, (off_t)offset) == (ssize_t)size;
}

_Static_assert(sizeof(mp_store_mark) * 2 + 12 < 128, "lengths in the row of a mark are single bytes");

/* Reads the mark from the root page of its table: a leaf with one row, whose second column is a blob. False if the page
 * is another one. */
static bool parse_mark(const uint8_t *page, size_t size, mp_store_mark *mark)
{
    static const uint8_t leaf = 13, row[] = {sizeof *mark + 3, 1, 3, 0, sizeof *mark * 2 + 12};
    size_t at = (size_t)page[8] << 8 | page[9];
    if (page[0] != leaf || page[3] != 0 || page[4] != 1 || at + sizeof row + sizeof *mark > size ||
        memcmp(page + at, row, sizeof row) != 0)
        return false;
    memcpy(mark, page + at + sizeof row, sizeof *mark);
    return true;
}

/* Reads frame number `index`; sets its page number. False if the generation has no such frame. */
static bool read_frame(wal_reader *wal, int64_t index, uint32_t *page_number)
{
    uint8_t head[FRAME_HEADER];
    int64_t at = WAL_HEADER + index * (FRAME_HEADER + (int64_t)wal->page_size);
    *page_number = 0;
    if (!read_at(wal->fd, head, sizeof head, at) || memcmp(head + 8, wal->salts, sizeof wal->salts) != 0)
        return false;
    *page_number = number_at(head);
    return read_at(wal->fd, wal->page, wal->page_size, at + FRAME_HEADER);
}

/* False if SQLite finds no transaction in the file. */
static bool start_reading(wal_reader *wal)
{
    uint8_t head[WAL_HEADER];
    if (!read_at(wal->fd, head, sizeof head, 0))
        return false;
    wal->page_size = number_at(head + 8);
    memcpy(wal->salts, head + 16, sizeof wal->salts);
    return wal->page_size >= 512 && wal->page_size <= MAX_PAGE && read_frame(wal, 0, &wal->mark_page);
}

/* Reads the last mark of the generation. False if the first frame is no mark. */
static bool read_last_mark(wal_reader *wal, mp_store_mark *mark)
{
    uint32_t page_number;
    mp_store_mark later;
    if (!parse_mark(wal->page, wal->page_size, mark))
        return false;
    for (int64_t i = 1; read_frame(wal, i, &page_number); i++)
        if (page_number == wal->mark_page && parse_mark(wal->page, wal->page_size, &later) &&
            later.generation == mark->generation)
            *mark = later;
    return true;
}

uint64_t mp_store_generation(int database, uint32_t page, uint32_t page_size)
{
    mp_store_mark mark;
    uint8_t *bytes = malloc(page_size);
    bool found = page > 0 && bytes != NULL && read_at(database, bytes, page_size, (int64_t)(page - 1) * page_size) &&
                 parse_mark(bytes, page_size, &mark);
    free(bytes);
    return found ? mark.generation : 0;
}

int64_t mp_store_changed_ns(const struct stat *file)
{
    return (int64_t)file->st_mtim.tv_sec * 1000000000 + file->st_mtim.tv_nsec;
}

/* If the -wal file is where it was written, so must be the database, and unchanged until a checkpoint began. Both may
 * have been copied together: then the generation in the database decides. */
static bool fits(const mp_store_files *files, const wal_reader *wal, const mp_store_mark *mark)
{
    struct stat database;
    mp_file_id log;
    uint64_t held = mp_store_generation(files->database, wal->mark_page, wal->page_size);
    if (fstat(files->database, &database) != 0 || mp_file_identify(files->wal, "", &log) != 0 || held == 0 ||
        (held != mark->generation && held != mark->before))
        return false;
    return memcmp(&log, &mark->wal, sizeof log) != 0 ||
           (database.st_ino == mark->inode &&
            (mark->is_ending == 1 || mp_store_changed_ns(&database) == mark->changed_ns));
}

bool mp_store_wal_fits(const mp_store_files *files)
{
    mp_store_mark mark;
    wal_reader *wal = mp_new(sizeof *wal);
    wal->fd = files->wal;
    bool is_used = files->wal >= 0 && start_reading(wal);
    bool does_fit = !is_used || (read_last_mark(wal, &mark) && fits(files, wal, &mark));
    free(wal);
    return does_fit;
}

bool mp_store_wal_has(int fd, uint64_t generation)
{
    mp_store_mark mark;
    wal_reader *wal = mp_new(sizeof *wal);
    wal->fd = fd;
    bool has = !start_reading(wal) || (parse_mark(wal->page, wal->page_size, &mark) && mark.generation == generation);
    free(wal);
    return has;
}
