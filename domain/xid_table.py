"""The decision for every Xid code from 1 to 99, with its reason.

Code: class, reason and, where we do not do what NVIDIA's catalogue says, why. Nothing is left to a default:
a code that is in no table is ``gpu.unknown_xid``, and a test compares the tables with the catalogue.
"""

from __future__ import annotations

Row = tuple[str, str] | tuple[str, str, str]

XIDS_TO_99: dict[int, Row] = {
    1: (
        "gpu.unknown_xid",
        "retired channel error, not printed since Volta: a driver that prints it is outside every table",
    ),
    2: (
        "gpu.unknown_xid",
        "retired channel error, not printed since Volta: a driver that prints it is outside every table",
    ),
    3: (
        "gpu.unknown_xid",
        "retired channel error, not printed since Volta: a driver that prints it is outside every table",
    ),
    4: (
        "gpu.unknown_xid",
        "retired channel error, not printed since Volta: a driver that prints it is outside every table",
    ),
    5: (
        "gpu.unknown_xid",
        "retired channel error, not printed since Volta: a driver that prints it is outside every table",
    ),
    6: (
        "gpu.unknown_xid",
        "retired channel error, not printed since Volta: a driver that prints it is outside every table",
    ),
    7: (
        "gpu.unknown_xid",
        "retired channel error, not printed since Volta: a driver that prints it is outside every table",
    ),
    8: (
        "application.gpu_exception",
        "the job's channel was idle beyond its time limit; a new process starts clean",
    ),
    9: (
        "gpu.unknown_xid",
        "retired driver or display error of old boards: outside every table, a person looks",
    ),
    10: (
        "gpu.unknown_xid",
        "retired channel error, not printed since Volta: a driver that prints it is outside every table",
    ),
    11: ("application.gpu_exception", "the job sent commands that this GPU does not have or allow"),
    12: (
        "gpu.unknown_xid",
        "retired driver or display error of old boards: outside every table, a person looks",
    ),
    13: (
        "application.gpu_exception",
        "the job's kernel did something illegal; one crash prints a dozen of these lines",
    ),
    14: ("gpu.event", "a test fault that somebody injected from user space"),
    15: (
        "gpu.unknown_xid",
        "retired channel error, not printed since Volta: a driver that prints it is outside every table",
    ),
    16: (
        "gpu.unknown_xid",
        "retired driver or display error of old boards: outside every table, a person looks",
    ),
    17: (
        "gpu.unknown_xid",
        "retired channel error, not printed since Volta: a driver that prints it is outside every table",
    ),
    18: (
        "gpu.unknown_xid",
        "retired driver or display error of old boards: outside every table, a person looks",
    ),
    19: (
        "gpu.unknown_xid",
        "retired driver or display error of old boards: outside every table, a person looks",
    ),
    20: ("gpu.unknown_xid", "retired video pipeline code: outside every table, a person looks"),
    21: ("gpu.unknown_xid", "retired video pipeline code: outside every table, a person looks"),
    22: ("gpu.unknown_xid", "retired video pipeline code: outside every table, a person looks"),
    23: ("gpu.unknown_xid", "retired video pipeline code: outside every table, a person looks"),
    24: (
        "gpu.unknown_xid",
        "retired channel error, not printed since Volta: a driver that prints it is outside every table",
    ),
    25: ("application.gpu_exception", "the job sent commands that this GPU does not have or allow"),
    26: (
        "gpu.unknown_xid",
        "retired driver or display error of old boards: outside every table, a person looks",
    ),
    27: (
        "gpu.unknown_xid",
        "retired video engine code of boards before Ampere: outside every table, a person looks",
    ),
    28: (
        "gpu.unknown_xid",
        "retired video engine code of boards before Ampere: outside every table, a person looks",
    ),
    29: (
        "gpu.unknown_xid",
        "retired video engine code of boards before Ampere: outside every table, a person looks",
    ),
    30: (
        "gpu.unknown_xid",
        "retired driver or display error of old boards: outside every table, a person looks",
    ),
    31: ("application.memory_fault", "the job touched an address that is not mapped"),
    32: (
        "application.gpu_exception",
        "the job's command stream arrived damaged or wrong; often the job, seldom the PCIe signal",
    ),
    33: (
        "gpu.unknown_xid",
        "retired video engine code of boards before Ampere: outside every table, a person looks",
    ),
    34: (
        "gpu.unknown_xid",
        "retired video engine code of boards before Ampere: outside every table, a person looks",
    ),
    35: (
        "gpu.unknown_xid",
        "retired video engine code of boards before Ampere: outside every table, a person looks",
    ),
    36: (
        "gpu.unknown_xid",
        "retired video engine code of boards before Ampere: outside every table, a person looks",
    ),
    37: ("gpu.event", "the context firmware met a request it does not know; the driver goes on"),
    38: (
        "gpu.event",
        "the context firmware's watchdog fired once; if the GPU is stuck, 109 or 154 follows and is acted on",
    ),
    39: ("application.engine_exception", "a copy engine refused the job's transfer"),
    40: ("application.engine_exception", "a copy engine refused the job's transfer"),
    41: ("application.engine_exception", "a copy engine refused the job's transfer"),
    42: (
        "gpu.unknown_xid",
        "retired video engine code of boards before Ampere: outside every table, a person looks",
    ),
    43: (
        "application.gpu_exception",
        "the driver stopped a channel of a job that had already failed; the GPU stays well",
    ),
    44: (
        "gpu.event",
        "a fault during a context switch; if the engine is stuck, 109 or 154 follows and is acted on",
    ),
    45: ("application.teardown", "channels are removed after another error or a kill: it never leads"),
    46: ("gpu.channel_timeout", "the GPU stopped processing and needs a reset"),
    47: (
        "gpu.unknown_xid",
        "video encoder code that is no longer in use: it names the job's work at most, a person looks",
    ),
    48: ("gpu.ecc_uncorrectable", "memory returned data that ECC could not correct"),
    49: ("gpu.unknown_xid", "retired fan and clock control code: outside every table, a person looks"),
    50: ("gpu.unknown_xid", "retired fan and clock control code: outside every table, a person looks"),
    51: ("gpu.unknown_xid", "retired fan and clock control code: outside every table, a person looks"),
    52: ("gpu.unknown_xid", "retired fan and clock control code: outside every table, a person looks"),
    53: ("gpu.unknown_xid", "retired fan and clock control code: outside every table, a person looks"),
    54: (
        "gpu.power_connector",
        "the board misses its power cable: hands are needed, no software step helps",
        "NVIDIA says check the mechanics: the node leaves service until a person did, since the GPU cannot work",
    ),
    55: ("gpu.unknown_xid", "retired fan and clock control code: outside every table, a person looks"),
    56: ("gpu.unknown_xid", "retired display code: outside every table, a person looks"),
    57: (
        "gpu.unknown_xid",
        "retired memory interface code of old boards; if memory is bad, the ECC codes say so on boards of today",
    ),
    58: (
        "gpu.unknown_xid",
        "retired memory interface code of old boards; if memory is bad, the ECC codes say so on boards of today",
    ),
    59: (
        "gpu.microcontroller_halt",
        "older drivers print it when the power controller stops, like 62 today",
        "NVIDIA lists it as unused in current drivers; whoever still prints it has a halted controller",
    ),
    60: ("application.engine_exception", "the security engine for video refused the job's work"),
    61: (
        "gpu.microcontroller_halt",
        "older drivers print it when the power controller stops, like 62 today",
        "NVIDIA lists it as unused in current drivers; whoever still prints it has a halted controller",
    ),
    62: ("gpu.microcontroller_halt", "the power management controller halted"),
    63: (
        "gpu.row_remap_pending",
        "a spare row waits for the next reset (Ampere and later), or a page for retirement (before)",
        "NVIDIA ignores the line and looks at the pending flag: we open a degraded fault that NVML's "
        "flag closes, and running jobs may end first",
    ),
    64: (
        "gpu.row_remap_failure",
        "no spare row is left for a bad one, so it comes back after any reset",
        "NVIDIA resets first; its own exchange policy names this flag, so we go for the exchange at once",
    ),
    65: (
        "gpu.unknown_xid",
        "video encoder code that is no longer in use: it names the job's work at most, a person looks",
    ),
    66: ("application.illegal_access", "the firmware refused a register access: the GPU is well"),
    67: ("application.illegal_access", "the firmware refused a register access: the GPU is well"),
    68: ("application.engine_exception", "video decoder NVDEC0 refused the job's work"),
    69: ("application.gpu_exception", "the job used a graphics class in a wrong way"),
    70: ("application.engine_exception", "copy engine CE3 refused the job's transfer"),
    71: ("application.engine_exception", "copy engine CE4 refused the job's transfer"),
    72: ("application.engine_exception", "copy engine CE5 refused the job's transfer"),
    73: (
        "gpu.unknown_xid",
        "video encoder code that is no longer in use: it names the job's work at most, a person looks",
    ),
    74: (
        "nvlink.error",
        "a link to another GPU or a switch failed; without its link registers we take it as fatal",
    ),
    75: ("application.engine_exception", "copy engine CE6 refused the job's transfer"),
    76: ("application.engine_exception", "copy engine CE7 refused the job's transfer"),
    77: ("application.engine_exception", "copy engine CE8 refused the job's transfer"),
    78: (
        "gpu.inspection_wanted",
        "a virtual GPU did not start: host and guest drivers do not match, which an update mends",
    ),
    79: (
        "gpu.fallen_off_bus",
        "the GPU is gone from PCIe: only a reboot, often only a power cycle, brings it back",
    ),
    80: (
        "application.gpu_exception",
        "data sent to the GPU arrived with a wrong checksum and the job was stopped",
    ),
    81: ("gpu.unknown_xid", "retired display code: outside every table, a person looks"),
    82: ("application.engine_exception", "image decoder NVJPG0 refused the job's work"),
    83: ("application.engine_exception", "video decoder NVDEC1 refused the job's work"),
    84: ("application.engine_exception", "video decoder NVDEC2 refused the job's work"),
    85: ("application.engine_exception", "copy engine CE9 refused the job's transfer"),
    86: ("application.engine_exception", "the optical flow engine refused the job's work"),
    87: ("gpu.unknown_xid", "reserved by NVIDIA: no meaning is published"),
    88: ("application.engine_exception", "video decoder NVDEC3 refused the job's work"),
    89: ("application.engine_exception", "video decoder NVDEC4 refused the job's work"),
    90: ("gpu.unknown_xid", "reserved by NVIDIA: no meaning is published"),
    91: ("gpu.unknown_xid", "reserved by NVIDIA: no meaning is published"),
    92: ("gpu.event", "many corrected single-bit errors: harmless each, a trend to watch"),
    93: ("gpu.event", "the InfoROM is written more often than planned; computing is not affected"),
    94: ("gpu.ecc_contained", "an uncorrectable error that was kept to one process: only its job restarts"),
    95: ("gpu.ecc_uncorrectable", "an uncorrectable error that may have reached every process on the GPU"),
    96: ("application.engine_exception", "video decoder NVDEC5 refused the job's work"),
    97: ("application.engine_exception", "video decoder NVDEC6 refused the job's work"),
    98: ("application.engine_exception", "video decoder NVDEC7 refused the job's work"),
    99: ("application.engine_exception", "image decoder NVJPG1 refused the job's work"),
}
