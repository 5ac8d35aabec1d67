/* lockstep/base/sha256.h - SHA-256 (FIPS 180-4), for services that want it of what is sent to them.
 * Our own files have XXH3-128, which is many times faster. */
#ifndef LOCKSTEP_BASE_SHA256_H
#define LOCKSTEP_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LS_SHA256_BYTES = 32, LS_SHA256_HEX_BYTES = 65 };

/* Local. digest = SHA-256 of data[bytes]. */
void ls_sha256(const void *data, size_t bytes, uint8_t digest[LS_SHA256_BYTES]);
/* The same in 64 hexadecimal digits, terminated. */
void ls_sha256_hex(const void *data, size_t bytes, char text[LS_SHA256_HEX_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
