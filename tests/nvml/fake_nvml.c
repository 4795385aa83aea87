/* A stand-in for libnvidia-ml.so.1, steered by the file that $FAKE_NVML names. The file is read again at each call,
 * one "key=value" a line:
 *   count=2  driver=580.65.06  init=!9         a value "!N" makes the call return the NVML error N
 *   gpu0.temperature=45                        without a line, a GPU says "not supported" (3)
 *   gpu0.lost=1                                every call on it returns NVML_ERROR_GPU_IS_LOST (15)
 *   hang=nvmlDeviceGetTemperature (or *)  hang_seconds=60   crash=nvmlDeviceGetUUID
 * Prototypes and error numbers: nvml.h of the CUDA toolkit. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };
typedef unsigned int uint;
typedef unsigned long long ulong64;
struct device { uint index; };
static struct device devices[64];

static char text[65536];

/* Reads the steering file; with $FAKE_NVML_ONCE only the first time, so that measurements see NVML's own cost. */
static void refresh(void) {
  static int done;
  const char *path = getenv("FAKE_NVML");
  if (done && getenv("FAKE_NVML_ONCE")) return;
  done = 1;
  FILE *file = path ? fopen(path, "r") : NULL;
  size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
  text[length] = 0;
  if (file) fclose(file);
}

/* Copies the value of a key; returns 1 when there is one. */
static int setting(const char *key, char *value, size_t size) {
  size_t length = strlen(key);
  refresh();
  for (const char *line = text; *line;) {
    size_t end = strcspn(line, "\n");
    if (end > length && !strncmp(line, key, length) && line[length] == '=') {
      snprintf(value, size, "%.*s", (int)(end - length - 1), line + length + 1);
      return 1;
    }
    line += end + (line[end] == '\n');
  }
  return 0;
}

static void misbehave(const char *call) {
  char value[128];
  if (setting("crash", value, sizeof value) && !strcmp(value, call)) raise(SIGSEGV);
  while (setting("hang", value, sizeof value) && (!strcmp(value, call) || !strcmp(value, "*"))) {
    char seconds[32] = "3600";
    setting("hang_seconds", seconds, sizeof seconds);
    struct timespec left = {atoi(seconds), 0};
    nanosleep(&left, NULL);
    if (atoi(seconds) < 60) break;
  }
}

/* A setting of the whole library or of one GPU: 0 and the text, or an NVML error. */
static int answer(const char *call, struct device *device, const char *name, char *value, size_t size) {
  char key[128];
  misbehave(call);
  if (!device) snprintf(key, sizeof key, "%s", name);
  else {
    snprintf(key, sizeof key, "gpu%u.lost", device->index);
    if (setting(key, value, size) && atoi(value)) return GPU_IS_LOST;
    snprintf(key, sizeof key, "gpu%u.%s", device->index, name);
  }
  if (!setting(key, value, size)) return NOT_SUPPORTED;
  return value[0] == '!' ? atoi(value + 1) : OK;
}

static int number(const char *call, struct device *device, const char *name, ulong64 *out) {
  char value[256];
  int status = answer(call, device, name, value, sizeof value);
  if (!status) *out = strtoull(value, NULL, 0);
  return status;
}

static int small(const char *call, struct device *device, const char *name, uint *out) {
  ulong64 wide = 0;
  int status = number(call, device, name, &wide);
  if (!status) *out = (uint)wide;
  return status;
}

int nvmlInitWithFlags(uint flags) {
  char value[256];
  (void)flags;
  misbehave("nvmlInitWithFlags");
  return setting("init", value, sizeof value) && value[0] == '!' ? atoi(value + 1) : OK;
}
int nvmlShutdown(void) { misbehave("nvmlShutdown"); return OK; }
const char *nvmlErrorString(int status) { (void)status; return "an error of the stand-in"; }
int nvmlSystemGetDriverVersion(char *out, uint size) {
  return answer(__func__, NULL, "driver", out, size);
}
int nvmlDeviceGetCount_v2(uint *out) { return small(__func__, NULL, "count", out); }
int nvmlDeviceGetHandleByIndex_v2(uint index, struct device **out) {
  char value[64], key[64];
  uint count = 0;
  misbehave(__func__);
  if (nvmlDeviceGetCount_v2(&count) || index >= count || index >= 64) return INVALID_ARGUMENT;
  devices[index].index = index;
  *out = &devices[index];
  snprintf(key, sizeof key, "gpu%u.lost", index);
  if (setting(key, value, sizeof value) && atoi(value)) return GPU_IS_LOST;
  snprintf(key, sizeof key, "gpu%u.handle", index);
  return setting(key, value, sizeof value) && value[0] == '!' ? atoi(value + 1) : OK;
}
int nvmlDeviceGetUUID(struct device *d, char *out, uint size) { return answer(__func__, d, "uuid", out, size); }
int nvmlDeviceGetName(struct device *d, char *out, uint size) { return answer(__func__, d, "name", out, size); }
int nvmlDeviceGetSerial(struct device *d, char *out, uint size) { return answer(__func__, d, "serial", out, size); }

struct pci { char legacy[16]; uint domain, bus, device, id, subsystem; char address[32]; };
int nvmlDeviceGetPciInfo_v3(struct device *d, struct pci *out) {
  memset(out, 0, sizeof *out);
  int status = answer(__func__, d, "pci", out->address, sizeof out->address);
  if (!status) sscanf(out->address, "%x:%x:%x", &out->domain, &out->bus, &out->device);
  return status;
}
int nvmlDeviceGetTemperature(struct device *d, uint sensor, uint *out) {
  (void)sensor;
  return small(__func__, d, "temperature", out);
}
int nvmlDeviceGetTemperatureThreshold(struct device *d, uint which, uint *out) {
  return small(__func__, d, which ? "slowdown" : "shutdown", out);
}
int nvmlDeviceGetCurrentClocksEventReasons(struct device *d, ulong64 *out) {
  return number(__func__, d, "reasons", out);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, ulong64 *out) {
  return number(__func__, d, "throttle_reasons", out);
}
int nvmlDeviceGetTotalEccErrors(struct device *d, uint type, uint counter, ulong64 *out) {
  if (type != 1) return INVALID_ARGUMENT;
  return number(__func__, d, counter ? "ecc_aggregate" : "ecc_volatile", out);
}
int nvmlDeviceGetRemappedRows(struct device *d, uint *corrected, uint *uncorrected, uint *pending, uint *failure) {
  char value[256];
  int status = answer(__func__, d, "remapped", value, sizeof value);
  if (!status && sscanf(value, "%u,%u,%u,%u", corrected, uncorrected, pending, failure) != 4) return INVALID_ARGUMENT;
  return status;
}
int nvmlDeviceGetRetiredPagesPendingStatus(struct device *d, uint *out) {
  return small(__func__, d, "retired_pending", out);
}
int nvmlDeviceGetMaxPcieLinkGeneration(struct device *d, uint *out) { return small(__func__, d, "gen_max", out); }
int nvmlDeviceGetCurrPcieLinkGeneration(struct device *d, uint *out) { return small(__func__, d, "gen", out); }
int nvmlDeviceGetMaxPcieLinkWidth(struct device *d, uint *out) { return small(__func__, d, "width_max", out); }
int nvmlDeviceGetCurrPcieLinkWidth(struct device *d, uint *out) { return small(__func__, d, "width", out); }
int nvmlDeviceGetMigMode(struct device *d, uint *current, uint *pending) {
  int status = small(__func__, d, "mig", current);
  if (!status) *pending = *current;
  return status;
}
int nvmlDeviceGetNvLinkState(struct device *d, uint link, uint *out) {
  char value[256];
  int status = answer(__func__, d, "nvlinks", value, sizeof value); /* one digit a link */
  if (status) return status;
  if (link >= strlen(value)) return INVALID_ARGUMENT;
  if (value[link] == '-') return NOT_SUPPORTED;
  *out = value[link] == '1';
  return OK;
}

struct process { uint pid; ulong64 memory; uint gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, uint *count, struct process *out) {
  char value[1024], *rest = value, *one;
  uint found = 0;
  int status = answer(__func__, d, "processes", value, sizeof value); /* pid:bytes,pid:- */
  if (status) return status;
  while ((one = strsep(&rest, ","))) {
    char *bytes = strchr(one, ':');
    if (!bytes) continue;
    if (out && found < *count) {
      out[found].pid = (uint)atoi(one);
      out[found].memory = bytes[1] == '-' ? ~0ULL : strtoull(bytes + 1, NULL, 0);
      out[found].gpu_instance = out[found].compute_instance = ~0u;
    }
    found++;
  }
  status = found && (!out || found > *count) ? INSUFFICIENT_SIZE : OK;
  *count = found;
  return status;
}

struct field { uint id, scope; long long timestamp, latency; uint type; int status; union { uint small; ulong64 wide; } value; };
int nvmlDeviceGetFieldValues(struct device *d, int count, struct field *fields) {
  char value[64];
  if (answer(__func__, d, "lost", value, sizeof value) == GPU_IS_LOST) return GPU_IS_LOST;
  for (int i = 0; i < count; i++) {
    fields[i].type = 1; /* NVML_VALUE_TYPE_UNSIGNED_INT */
    fields[i].status = fields[i].id == 230 ? small(__func__, d, "recovery_action", &fields[i].value.small) : NOT_SUPPORTED;
  }
  return OK;
}
