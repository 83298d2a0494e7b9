/* sha256.h: the hash by which secrets, principals and kept generations are known. */
#ifndef MP_DATA_SHA256_H
#define MP_DATA_SHA256_H

#include "base/base.h"

#define MP_SHA256_BYTES 32

void mp_sha256(mp_str bytes, unsigned char hash[MP_SHA256_BYTES]);

#endif
