/* Any bytes as a cluster file and as figures to set: refused or read, never more. What is read is
 * written and read back to the same, and gives finite times. */
#include <lockstep/planner/cost.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *written(const struct ls_cluster *cluster, size_t *bytes)
{
    char *text = NULL;
    struct ls_error error = {0};
    FILE *file = open_memstream(&text, bytes);
    LS_ASSERT(file);
    LS_ASSERT(ls_cluster_write(cluster, file, &error) == LS_OK);
    fclose(file);
    return text;
}

static void write_and_read_back(const struct ls_cluster *cluster)
{
    size_t bytes = 0, bytes_again = 0;
    struct ls_error error = {0};
    struct ls_cluster again;
    char *text = written(cluster, &bytes);
    LS_ASSERT(ls_cluster_read_text("again.yaml", text, bytes, &again, &error) == LS_OK);
    char *text_again = written(&again, &bytes_again);
    LS_ASSERT(bytes == bytes_again && memcmp(text, text_again, bytes) == 0);
    free(text_again);
    free(text);
    ls_cluster_release(&again);
}

static void cost(const struct ls_cluster *cluster)
{
    struct ls_work work = {LS_WORK_PRODUCT_BT, LS_BF16, 100, 200, 300, 12e6, 2e5};
    struct ls_cost_group group = ls_cost_group_of(cluster, 1, 0, 16, 3);
    LS_ASSERT(isfinite(ls_cost_work(cluster, 1, &work)));
    LS_ASSERT(cluster->links == 0 ||
              isfinite(ls_cost_move(cluster, &group, LS_COMM_ALL_REDUCE, 1e6)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_cluster cluster;
    struct ls_error error = {0};
    if (ls_cluster_read_text("fuzz.yaml", (const char *)data, size, &cluster, &error) == LS_OK) {
        write_and_read_back(&cluster);
        cost(&cluster);
        ls_cluster_release(&cluster);
    } else {
        LS_ASSERT(error.text[0] != '\0');
    }
    static const char known[] = "name: a\nhosts: 2\naccelerators: 4\naccelerator: {name: b, peak: "
                                "{bf16: 1e12}, memory: 1e9, bandwidth: 1e9}\nlinks: [{name: c, "
                                "joins: 4, latency: 0, bandwidth: 1e9}, {name: d.e, joins: 8, "
                                "latency: 1 us, bandwidth: 1e8}]\n";
    LS_ASSERT(ls_cluster_read_text("known", known, sizeof known - 1, &cluster, &error) == LS_OK);
    char *path = malloc(size + 1);
    if (path) {
        memcpy(path, data, size);
        path[size] = '\0';
        char *value = strchr(path, '=');
        if (value)
            *value++ = '\0';
        if (ls_cluster_set(&cluster, path, value ? value : path, &error) == LS_OK)
            write_and_read_back(&cluster);
    }
    free(path);
    ls_cluster_release(&cluster);
    return 0;
}
