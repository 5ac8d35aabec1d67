/* Tokens for tests that train. */
#ifndef TEST_TRAIN_TOKENS_H
#define TEST_TRAIN_TOKENS_H

/* cmocka set-up: *state is a directory with tokens.bin, 16-bit tokens below 50 of which small ones
 * are more frequent, and valid.bin with the same ones. scratch_teardown takes it down. */
int tokens_setup(void **state);

#endif
