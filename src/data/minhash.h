/* MinHash signatures, and an index of signatures by bands (minhash.c, near_index.c). */
#ifndef DATA_MINHASH_H
#define DATA_MINHASH_H

#include "data/corpus_private.h"

enum { DATA_HASHES_MAX = 1024, DATA_SHINGLE_MAX = 32 };
struct data_minhash {
    int hashes, shingle;
    uint64_t factor[DATA_HASHES_MAX], term[DATA_HASHES_MAX];
};
void data_minhash_init(struct data_minhash *minhash, int hashes, int shingle);
/* signature[hashes] of a text in UTF-8. *empty: it has no word, and no shingle. scratch is the
 * thread's. LS_ENOMEM. */
int data_minhash_sign(const struct data_minhash *minhash, const struct ls_text *text,
                      struct ls_text *scratch, uint32_t *signature, bool *empty,
                      struct ls_error *error);

/* Documents that are kept are numbered by 32 bits. LS_EDATA if there are so many already. */
#define DATA_KEPT_MAX ((int64_t)1 << 31)
int data_kept_admit(int64_t count, struct ls_error *error);

/* Signatures one behind the other, found by bands: in the table of a band, open addressing by the
 * band's values, stands the last entry with these values, and each entry has a link to the one
 * before. */
struct data_near_index {
    int hashes, bands, rows;
    int64_t count, room;
    uint32_t *signatures; /* [count][hashes] */
    uint32_t *links;      /* [count][bands]: an entry + 1 with the same band; 0: none. Neither this
                           * nor the next if a band has all values: then entries are distinct */
    uint32_t *seen;       /* [count]: by which query an entry was looked at last */
    uint32_t *tables;     /* [bands][slots]: an entry + 1; 0: free */
    int64_t slots;        /* a power of two, at least twice the count */
    uint32_t queries;
};
void data_near_init(struct data_near_index *index, int hashes, int bands, int rows);
void data_near_release(struct data_near_index *index);
int data_near_add(struct data_near_index *index, const uint32_t *signature, struct ls_error *error);
/* Of memory. */
int64_t data_near_bytes(const struct data_near_index *index);
/* The first entry that shares a band with the signature and at least `equal` of its values; *values
 * = how many. -1: none. */
int64_t data_near_find(struct data_near_index *index, const uint32_t *signature, int equal,
                       int *values);

#endif
