/* data.h: data that outlives a Lua state or is shared by several, without Lua and without MCP.
 *
 *   source     the text of every script file
 *   store      a key-value store, shared by all workers, saved to a file if configured
 *   database   an SQLite database on a thread of its own
 *   last good  the last generation that served without errors, kept in a file
 *   semaphore  a counting semaphore of the process, by name
 *   jwk        keys that sign and verify tokens
 *   seal       encrypts what others store and send back
 *   sha256     the hash by which secrets are compared */
#ifndef MP_DATA_H
#define MP_DATA_H

#include "data/database.h"
#include "data/jwk.h"
#include "data/last_good.h"
#include "data/semaphore.h"
#include "data/seal.h"
#include "data/sha256.h"
#include "data/source.h"
#include "data/store.h"
#include "data/store_later.h"

#endif
