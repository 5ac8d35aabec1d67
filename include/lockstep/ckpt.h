/* lockstep/ckpt.h - tensors in files: safetensors, and the checkpoints of a run.
 *
 *   struct ls_safetensors          an open file, its header validated
 *   struct ls_safetensors_writer   a file written in one pass
 *   struct ls_checkpoint_writer    RUN/checkpoints/step-%08d/, complete or absent
 *   struct ls_checkpoint           one of them, each byte verified before it is given away
 *
 * Formats: https://github.com/huggingface/safetensors; of checkpoints doc/checkpoint-format.md.
 * Everything here is Local except the writer of checkpoints, which all ranks write together, and
 * ls_checkpoint_load. A damaged file is LS_ECKPT with the file, the tensor, what was
 * expected and what was found; a refusal of the system is LS_EIO or LS_ENOSPC.
 */
#ifndef LOCKSTEP_CKPT_H
#define LOCKSTEP_CKPT_H

#include <lockstep/base.h>
#include <lockstep/base/file.h>
#include <lockstep/base/stored_file.h>
#include <lockstep/comm.h>

LS_C_BEGIN

enum { LS_TENSOR_DIMS_MAX = 8 };

/* ---- reading safetensors -------------------------------------------------------------------- */

/* Borrowed from the open file, all of it. */
struct ls_tensor_view {
    const char *name;
    const char *dtype_name; /* as in the file: "F32", "BF16", "F8_E4M3", ... */
    bool dtype_known;       /* dtype is valid: ls_dtype has this type (BOOL reads as LS_U8) */
    enum ls_dtype dtype;
    int dims;                          /* 0 for a scalar */
    int64_t shape[LS_TENSOR_DIMS_MAX]; /* row-major, slowest first */
    int64_t at;                        /* the byte of the file at which its data begin */
    size_t bytes;
};

/* Opens path and checks all of it but the tensors' values: header size, UTF-8, JSON without
 * duplicate keys, dtypes, shapes of at most 8 dims, every tensor's size, no hole and no overlap
 * between tensors, the file's size. */
struct ls_safetensors;
int ls_safetensors_open(struct ls_safetensors **out, const char *path, struct ls_error *error);
/* Views of the file end here. file may be NULL. */
void ls_safetensors_close(struct ls_safetensors *file);
/* Where the values are read: bytes [view->at, view->at + view->bytes). */
struct ls_stored_file *ls_safetensors_file(const struct ls_safetensors *file);
size_t ls_safetensors_count(const struct ls_safetensors *file);
/* Tensor i of the count, in the order of their data. */
const struct ls_tensor_view *ls_safetensors_at(const struct ls_safetensors *file, size_t i);
/* The tensor of that name, NULL if there is none. */
const struct ls_tensor_view *ls_safetensors_find(const struct ls_safetensors *file,
                                                 const char *name);
/* The metadata string of that key, NULL if there is none. Borrowed. */
const char *ls_safetensors_metadata(const struct ls_safetensors *file, const char *key);
/* As find, for a caller who knows what must be there: LS_ECKPT names the tensor that is missing or
 * has another dtype or shape, with both. */
int ls_safetensors_require(const struct ls_safetensors *file, const char *name, enum ls_dtype dtype,
                           int dims, const int64_t *shape, const struct ls_tensor_view **view,
                           struct ls_error *error);

/* ---- writing safetensors -------------------------------------------------------------------- */

/* A tensor to be written. */
struct ls_tensor_entry {
    const char *name;
    enum ls_dtype dtype;
    int dims;
    int64_t shape[LS_TENSOR_DIMS_MAX];
    const void *data; /* where the whole tensor lies; ignored by a caller that streams it */
};
struct ls_metadata {
    const char *key, *value;
};

/* Declares every tensor and writes the header; nothing is kept under the final name until commit.
 * Names must differ, and none may be "__metadata__". Entries and their names are borrowed until
 * finish or abort. {"format": "pt"} is always in the metadata. fault may be NULL. */
struct ls_safetensors_writer;
int ls_safetensors_writer_open(struct ls_safetensors_writer **out, const char *path,
                               const struct ls_tensor_entry *entries, size_t count,
                               const struct ls_metadata *metadata, size_t metadata_count,
                               const struct ls_fault *fault, struct ls_error *error);
/* Bytes are hashed from here on, before the first append: at finish tensors[i] is the XXH3-128 of
 * entry i's bytes, in 32 hexadecimal digits. header is there at once, of the bytes before the data.
 * Borrowed until finish or abort. */
struct ls_safetensors_digests {
    uint64_t header_bytes;
    char header[33];
    char (*tensors)[33]; /* [count], the caller's */
};
void ls_safetensors_writer_hash(struct ls_safetensors_writer *writer,
                                struct ls_safetensors_digests *digests);
/* order[count] = the entries in the order in which the file takes their data: in descending dtype,
 * then by name. */
void ls_safetensors_order(const struct ls_tensor_entry *entries, size_t count,
                          const struct ls_tensor_entry **order);
/* The tensor whose data the file takes next, NULL when all are there. It stays the same until all
 * of its bytes were appended. */
const struct ls_tensor_entry *
ls_safetensors_writer_next(const struct ls_safetensors_writer *writer);
/* Appends the next bytes of the next tensor; LS_EINVAL names a tensor that gets too many. Large
 * pieces go to the system straight from data. */
int ls_safetensors_writer_append(struct ls_safetensors_writer *writer, const void *data,
                                 size_t bytes, struct ls_error *error);
/* Checks that every declared byte came (LS_EINVAL), and lets the system put it on the disk
 * meanwhile (ls_atomic_file_start). *size: of the file; size may be NULL. */
int ls_safetensors_writer_finish(struct ls_safetensors_writer *writer, uint64_t *size,
                                 struct ls_error *error);
/* Finishes, makes the file durable and gives it its name. Frees the writer, also on failure. */
int ls_safetensors_writer_commit(struct ls_safetensors_writer *writer, struct ls_error *error);
/* Removes what was written and frees the writer, which may be NULL. */
void ls_safetensors_writer_abort(struct ls_safetensors_writer *writer);

/* ---- checkpoints ---------------------------------------------------------------------------- */

/* A checkpoint is the directory RUN/checkpoints/step-%08d/ with
 *   shard-RRRRR-model-00001-of-00001.safetensors      what rank RRRRR - 1 wrote of the parameters,
 *                                                     F32
 *   shard-RRRRR-optimizer-00001-of-00001.safetensors  and of optimizer states:
 *                                                     "exp_avg.<parameter>", ...
 *   manifest.json                                     the fields below; the tensors, and of which
 *                                                     pieces each consists; sizes and digests
 * It is written as step-%08d.tmp/, made durable, and renamed: a directory of the final name is
 * complete. Version 2 had no other names in its files than in its manifest, version 1 had
 * model.safetensors, optimizer.safetensors and state.json; both are read. */
struct ls_checkpoint_state {
    bool fresh; /* weights that come from elsewhere, of step 0: there is no optimizer state, and of
                 * the recipe only the model counts */
    int64_t step, samples, tokens;  /* done; consumed */
    double loss_scale;              /* 1 if none is used */
    int64_t good_steps, hysteresis; /* of a dynamic one (lockstep/optim/loss_scale.h); 0 if
                                     * the file does not say */
    const char *recipe_digest;      /* of the recipe's keys */
    const char *recipe;             /* the resolved recipe, as text */
    const char *fingerprint;        /* numerics.version, instruction set, compiler, commit */
    const char *hash;               /* state hash, hexadecimal; "" if not computed */
    const char *layout;             /* for people: which one wrote it; NULL or "" if not known */
    int64_t start;                  /* ls_run_token.start of who wrote it; 0 if not known */
};
enum ls_checkpoint_part { LS_CKPT_MODEL, LS_CKPT_OPTIMIZER };

/* Which part of a tensor an entry of a writer is: elements [offset, offset + shape) of each dim of
 * the tensor, whose shape is whole. */
struct ls_tensor_box {
    int64_t whole[LS_TENSOR_DIMS_MAX], offset[LS_TENSOR_DIMS_MAX];
    const char *name; /* of the tensor, if the entry's is only its name in the files; or NULL */
};

/* Which start of a run this is: RUN/start. A process of an earlier start, which a host that was cut
 * off may still have, can name no checkpoint there. */
struct ls_run_token {
    char run[33];  /* hexadecimal, drawn at the first start: another one in another run of the same
                    * path, and in a copy of the folder; "" if there is none */
    int64_t start; /* counted from 1; 0: there is none */
};
/* Who has the run's lock, once a start. Errors of files; LS_ECKPT if the file says nothing. */
int ls_run_token_take(const char *directory, struct ls_run_token *token, struct ls_error *error);
int ls_run_token_read(const char *directory, struct ls_run_token *token, struct ls_error *error);
int ls_run_token_write(const char *directory, const struct ls_run_token *token,
                       struct ls_error *error);

/* Where the folder lies in which a checkpoint is written. */
enum ls_checkpoint_place {
    LS_CKPT_SHARED,       /* one for all ranks, which rank 0 makes and names */
    LS_CKPT_EACH_MACHINE, /* one on each machine, of the same path: of its first rank. Each has the
                           * manifest of all, and the files of its ranks */
};

/* All ranks open; then each begins, appends until next is NULL and ends, for the parts of which it
 * has something; all commit.
 *
 * Collective over comm; NULL: one rank alone. The state's strings, rank 0's count, are borrowed
 * until commit. A leftover of an interrupted write of the same step is removed. run_directory
 * exists. spare: the step of a checkpoint there that is not wanted any more, and that nobody reads:
 * its files are written over, so that a file system in memory takes no new pages; -1: there is
 * none. After a failure, which all ranks have, *out is NULL. fault, each rank's own, may be NULL.
 * Commit is LS_EBUSY if state->start is not 0, and not that of run_directory's ls_run_token. */
struct ls_checkpoint_writer;
int ls_checkpoint_writer_open(struct ls_checkpoint_writer **out, const char *run_directory,
                              const struct ls_checkpoint_state *state, int64_t spare,
                              enum ls_checkpoint_place place, struct ls_comm *comm,
                              const struct ls_fault *fault, struct ls_error *error);
/* Local. *tensors takes the data of this rank's part through ls_safetensors_writer_next and
 * _append. boxes[count]; NULL: each entry is a whole tensor. Over all ranks each element of a
 * tensor is written once: who reads it checks that none is missing. A part is begun once, with one
 * tensor at least. Entries and boxes are borrowed until end or commit. */
int ls_checkpoint_writer_begin(struct ls_checkpoint_writer *writer, enum ls_checkpoint_part part,
                               const struct ls_tensor_entry *entries,
                               const struct ls_tensor_box *boxes, size_t count,
                               struct ls_safetensors_writer **tensors, struct ls_error *error);
/* Local. The part is complete: its file is on its way to the disk, and nobody waits for it yet. */
int ls_checkpoint_writer_end(struct ls_checkpoint_writer *writer, struct ls_error *error);
/* Local. The parts that were ended have their files, and are durable. Commit does so too. */
int ls_checkpoint_writer_sync(struct ls_checkpoint_writer *writer, struct ls_error *error);
/* Local, in the place of begin and end: `to` will have the files that this rank wrote to `from`,
 * whose parts are complete and synced. _take is before the commit of either, _copy any time later:
 * what `from` wrote may have been named, or removed. */
int ls_checkpoint_writer_take(struct ls_checkpoint_writer *to,
                              const struct ls_checkpoint_writer *from, struct ls_error *error);
int ls_checkpoint_writer_copy(struct ls_checkpoint_writer *to, struct ls_error *error);
/* Local, before begin: the parts go to memory that no folder has, and _copy, any time after the
 * last end, writes them to the checkpoint. *maps (NULL at first; base/file.h), the caller's to
 * free, keeps the memory of what was copied for the next writer, one at a time. */
struct ls_file_maps;
void ls_checkpoint_writer_stage(struct ls_checkpoint_writer *writer, struct ls_file_maps **maps);
/* Local, before begin: parts that are written over those of a spare go to its memory by such maps.
 */
void ls_checkpoint_writer_map(struct ls_checkpoint_writer *writer, struct ls_file_maps **maps);
/* From any thread: _copy, under way or not begun, ends with LS_ESTOPPED. */
void ls_checkpoint_writer_cancel(struct ls_checkpoint_writer *to);
/* Collective, of ranks that have all parts synced, for LS_CKPT_EACH_MACHINE: the files of each
 * rank go to the next `copies` machines too, as far as there are others. */
int ls_checkpoint_writer_replicate(struct ls_checkpoint_writer *writer, int64_t copies,
                                   struct ls_error *error);
/* Collective. status: how this rank fared since open. If all are LS_OK, rank 0 writes the
 * manifest and gives the directory its name; a checkpoint of the same step is replaced. Otherwise
 * nothing is left, and all ranks have the error of the lowest that failed. Frees the writer. */
int ls_checkpoint_writer_commit(struct ls_checkpoint_writer *writer, int status,
                                struct ls_error *error);
/* Local, where ranks cannot agree any more: frees the writer. What it wrote is swept later. NULL is
 * allowed. */
void ls_checkpoint_writer_drop(struct ls_checkpoint_writer *writer);

/* A tensor of a checkpoint, in one piece or in many. The checkpoint's. */
struct ls_stored_tensor {
    const char *name, *fqn; /* fqn: its name in the files */
    enum ls_dtype dtype;
    int dims;
    int64_t shape[LS_TENSOR_DIMS_MAX]; /* of the whole */
    size_t count;                      /* pieces */
    struct ckpt_piece *pieces;         /* private */
};
/* Strings and tensors belong to the checkpoint. */
struct ls_checkpoint {
    char directory[PATH_MAX];
    struct ls_checkpoint_state state;
    bool damaged; /* a read failed for what the files are: LS_ECKPT */
};
/* Opens one checkpoint directory, or the one that the file RUN/checkpoints/best names, by its
 * manifest: that is whole, each file is there and has its size, each piece lies in its tensor. What
 * is in the files is verified when it is read. */
int ls_checkpoint_open(struct ls_checkpoint **out, const char *directory, struct ls_error *error);
/* The same where the pieces lie in several folders: each file is taken from the first of these that
 * has one of its name and size. directory has the manifest. */
int ls_checkpoint_open_among(struct ls_checkpoint **out, const char *directory,
                             const char *const *folders, int count, struct ls_error *error);
/* checkpoint may be NULL. */
void ls_checkpoint_close(struct ls_checkpoint *checkpoint);
/* Tensors [0, count) of a part, by name. */
size_t ls_checkpoint_tensors(const struct ls_checkpoint *checkpoint, enum ls_checkpoint_part part,
                             const struct ls_stored_tensor **list);
/* How many files have its tensors. */
int64_t ls_checkpoint_files(const struct ls_checkpoint *checkpoint);
/* The tensor of that name, for a caller who knows what must be there: LS_ECKPT names the tensor
 * that is missing or has another dtype or shape, with both. */
int ls_checkpoint_require(const struct ls_checkpoint *checkpoint, enum ls_checkpoint_part part,
                          const char *name, enum ls_dtype dtype, int dims, const int64_t *shape,
                          const struct ls_stored_tensor **tensor, struct ls_error *error);
/* values[count] = elements [first, first + count) of the whole, row-major. A file's header and a
 * piece are compared with their digests when they are first touched; no other byte is read. Where
 * that fails, checkpoint->damaged tells. values NULL: only this. What was verified may be read by
 * several threads at once. */
int ls_checkpoint_read(struct ls_checkpoint *checkpoint, const struct ls_stored_tensor *tensor,
                       int64_t first, int64_t count, void *values, struct ls_error *error);
/* The same, with values, a portion at a time: arrived (NULL is allowed) is called while elements
 * [first, first + count) are in the core's own cache. A piece that is read whole is verified on the
 * way, so what arrived is worth nothing if the call fails. */
typedef void ls_checkpoint_arrived(void *user, int64_t first, int64_t count, void *values);
int ls_checkpoint_take(struct ls_checkpoint *checkpoint, const struct ls_stored_tensor *tensor,
                       int64_t first, int64_t count, void *values, ls_checkpoint_arrived *arrived,
                       void *user, struct ls_error *error);
/* Every piece of a part's tensors is verified, and no element missing. */
int ls_checkpoint_verify(struct ls_checkpoint *checkpoint, enum ls_checkpoint_part part,
                         struct ls_error *error);

/* Opens the newest checkpoint of a run whose manifest is whole and whose files have their sizes.
 * *out is NULL, with success, where the run has none. Each damaged one that is passed over is a
 * warning in log (NULL is allowed); if every one is damaged, LS_ECKPT tells what is wrong with the
 * newest. Where the system refuses to open one, LS_EIO or LS_ENOMEM, and no older one is taken.
 * Directories that end in .tmp are interrupted writes and are not looked at. */
int ls_checkpoint_find_latest(struct ls_checkpoint **out, const char *run_directory,
                              const struct ls_log *log, struct ls_error *error);
/* Collective over comm, of ranks that each opened a checkpoint; NULL: one rank alone. Loads it by
 * load, which reads what this rank needs. If a rank finds damage, all close it and load the next
 * older one of the run, with the same warning. status: how this rank's opening went; *checkpoint
 * may be NULL, with success, on all ranks. LS_ECKPT if no older one is sound or the checkpoint
 * was chosen by name, then *checkpoint is NULL; and where ranks opened different steps. */
typedef int ls_checkpoint_loader(void *user, struct ls_checkpoint *checkpoint,
                                 struct ls_error *error);
int ls_checkpoint_load(struct ls_checkpoint **checkpoint, struct ls_comm *comm, int status,
                       ls_checkpoint_loader *load, void *user, const struct ls_log *log,
                       struct ls_error *error);
/* needed[i] = whether the rank needs file i: by ls_checkpoint_need. needed NULL: reads what it
 * needs, by ls_checkpoint_read without values. */
typedef int ls_checkpoint_needs(void *user, struct ls_checkpoint *checkpoint, bool *needed,
                                struct ls_error *error);
/* Elements [first, first + count) of the tensor will be read soon: the system begins to read the
 * pieces that have them, and the disk is at work while the caller is. A hint. alone: no other rank
 * of this machine reads them, and ls_checkpoint_take will take all at once: large pieces that are
 * not in memory are read past the page cache, by a thread, in the order in which they are expected.
 */
void ls_checkpoint_expect(struct ls_checkpoint *checkpoint, const struct ls_stored_tensor *tensor,
                          int64_t first, int64_t count, bool alone);
/* Marks the files that have elements [first, first + count) of the tensor. */
void ls_checkpoint_need(const struct ls_stored_tensor *tensor, int64_t first, int64_t count,
                        bool *needed);
/* A checkpoint that a run has saved. */
struct ls_checkpoint_saved {
    int64_t step;  /* -1: there is none */
    int64_t start; /* ls_run_token.start of who saved it; 0 if not known */
};
/* Collective. The newest checkpoint of a step above than.step, of no earlier start than than.start,
 * that the machines have together, each in its own folder (LS_CKPT_EACH_MACHINE; the paths
 * may differ): what a machine's ranks need and it lacks is brought there, and verified. *out is
 * NULL, with success, if there is none; what is passed over is a warning in log. Errors of needs,
 * but for damage, are the caller's. Files that this machine lacks are only missed when they are
 * read. */
int ls_checkpoint_collect(struct ls_checkpoint **out, const char *folder,
                          struct ls_checkpoint_saved than, struct ls_comm *comm,
                          ls_checkpoint_needs *needs, void *user, const struct ls_log *log,
                          struct ls_error *error);
/* Whether path is one checkpoint, or the file that names the best one: by the file that describes
 * it, or, where that is lost, by its name. */
bool ls_checkpoint_is_one(const char *path);
/* The run that path belongs to: path is its directory, the folder of its checkpoints, one of them,
 * or the file that names the best one. LS_EDATA for another file. */
int ls_checkpoint_run(const char *path, char run[PATH_MAX], struct ls_error *error);
/* Opens the checkpoint that is meant by path, as above, and which: NULL (path's own checkpoint, or
 * the run's newest), "latest", "best" (the lowest validation loss, kept by train.keep_best), or a
 * step such as "300". LS_ECKPT lists the steps that are there. */
int ls_checkpoint_choose(struct ls_checkpoint **out, const char *path, const char *which,
                         const struct ls_log *log, struct ls_error *error);
/* directory = the newest whole checkpoint of the run that path is the directory of; any other path
 * as it is. LS_ECKPT: the run has none. */
int ls_checkpoint_newest(const char *path, char directory[PATH_MAX], struct ls_error *error);
/* Looks at one checkpoint, named as for ls_checkpoint_open: the manifest is whole and the files
 * have their sizes; they are not read. What visit gets is borrowed until it returns. */
typedef void ls_checkpoint_visitor(void *user, const char *directory,
                                   const struct ls_checkpoint_state *state);
int ls_checkpoint_visit(const char *directory, ls_checkpoint_visitor *visit, void *user,
                        struct ls_error *error);
/* *steps (to be freed) = those of a run's checkpoints, newest first, also of those that cannot be
 * read; none if there is no run. */
int ls_checkpoint_steps(const char *run_directory, int64_t **steps, int64_t *count,
                        struct ls_error *error);
/* ls_checkpoint_visit for each checkpoint of a run, newest first; those that are damaged are left
 * out. */
int ls_checkpoint_list(const char *run_directory, ls_checkpoint_visitor *visit, void *user,
                       struct ls_error *error);
/* *count = the checkpoints of a run, also those that cannot be read; 0 if there is no run. */
int ls_checkpoint_count(const char *run_directory, int *count, struct ls_error *error);
/* The directory of a run's checkpoint of that step, which need not be there. */
int ls_checkpoint_path(char path[PATH_MAX], const char *run_directory, int64_t step,
                       struct ls_error *error);
/* Whether the run has the checkpoint of that step. */
bool ls_checkpoint_there(const char *run_directory, int64_t step);

/* The checkpoint with the lowest validation loss, as the file RUN/checkpoints/best names it. */
struct ls_checkpoint_best {
    int64_t step;
    double loss;       /* its validation loss */
    int64_t sequences; /* over which that was taken */
};
/* *found is false if the run has no such file, or its checkpoint is gone. */
int ls_checkpoint_best_read(const char *run_directory, struct ls_checkpoint_best *best, bool *found,
                            struct ls_error *error);
/* Written aside and renamed; removed, if best->step is -1. The checkpoint is there already. */
int ls_checkpoint_best_write(const char *run_directory, const struct ls_checkpoint_best *best,
                             struct ls_error *error);
/* Removes all but the newest keep checkpoints of a run, the best one and what is not complete. One
 * whose manifest or sizes are wrong does not count, nor does the best one behind the newest. keep
 * <= 0 keeps all. saved: the step just written, -1: none was. As many later ones stay, which a run
 * left that went on before them: they may be damaged, and do not count. */
int ls_checkpoint_prune(const char *run_directory, int64_t keep, int64_t saved,
                        struct ls_error *error);
/* Removes all but those of the steps, and what interrupted writes left. */
int ls_checkpoint_retain(const char *run_directory, const int64_t *steps, int64_t count,
                         struct ls_error *error);
/* Removes all but that of the step, while another one may be written. */
int ls_checkpoint_remove_others(const char *run_directory, int64_t step, struct ls_error *error);

LS_C_END
#endif
