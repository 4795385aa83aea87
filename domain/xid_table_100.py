"""The decision for every Xid code from 100 on, with its reason.

Code: class, reason and, where we do not do what NVIDIA's catalogue says, why. Nothing is left to a default:
a code that is in no table is ``gpu.unknown_xid``, and a test compares the tables with the catalogue.
"""

from __future__ import annotations

Row = tuple[str, str] | tuple[str, str, str]

XIDS_FROM_100: dict[int, Row] = {
    100: ("application.engine_exception", "image decoder NVJPG2 refused the job's work"),
    101: ("application.engine_exception", "image decoder NVJPG3 refused the job's work"),
    102: ("application.engine_exception", "image decoder NVJPG4 refused the job's work"),
    103: ("application.engine_exception", "image decoder NVJPG5 refused the job's work"),
    104: ("application.engine_exception", "image decoder NVJPG6 refused the job's work"),
    105: ("application.engine_exception", "image decoder NVJPG7 refused the job's work"),
    106: ("gpu.event", "a test message of the board management interface"),
    107: ("gpu.event", "a test message of the board management interface"),
    108: (
        "application.illegal_access",
        "a peer's NVLink access had no translation: the job's mapping was wrong",
    ),
    109: (
        "gpu.channel_timeout",
        "the GPU could not switch contexts and hangs until a reset; some tools blame the job, the next "
        "job would hang too",
    ),
    110: ("gpu.security_fault", "the security hardware refused to go on"),
    111: ("gpu.unknown_xid", "display pipeline code; compute boards drive no display, so a person looks"),
    112: ("gpu.unknown_xid", "display pipeline code; compute boards drive no display, so a person looks"),
    113: ("gpu.unknown_xid", "display pipeline code; compute boards drive no display, so a person looks"),
    114: ("gpu.unknown_xid", "display pipeline code; compute boards drive no display, so a person looks"),
    115: ("gpu.unknown_xid", "display pipeline code; compute boards drive no display, so a person looks"),
    116: ("gpu.unknown_xid", "display pipeline code; compute boards drive no display, so a person looks"),
    117: ("gpu.unknown_xid", "display pipeline code; compute boards drive no display, so a person looks"),
    118: ("gpu.unknown_xid", "display pipeline code; compute boards drive no display, so a person looks"),
    119: ("gpu.gsp_timeout", "the GPU's system processor did not answer in time; every later call waits too"),
    120: ("gpu.gsp_timeout", "the GPU's system processor crashed"),
    121: ("gpu.event", "an error on the link to the CPU was corrected"),
    122: (
        "gpu.unknown_xid",
        "InfoROM or flash trouble that NVIDIA lists as unused; computing goes on, a person looks",
    ),
    123: (
        "gpu.unknown_xid",
        "InfoROM or flash trouble that NVIDIA lists as unused; computing goes on, a person looks",
    ),
    124: (
        "gpu.unknown_xid",
        "InfoROM or flash trouble that NVIDIA lists as unused; computing goes on, a person looks",
    ),
    125: (
        "gpu.unknown_xid",
        "InfoROM or flash trouble that NVIDIA lists as unused; computing goes on, a person looks",
    ),
    126: ("application.engine_exception", "copy engine CE10 refused the job's transfer"),
    127: ("application.engine_exception", "copy engine CE11 refused the job's transfer"),
    128: ("application.engine_exception", "copy engine CE12 refused the job's transfer"),
    129: ("application.engine_exception", "copy engine CE13 refused the job's transfer"),
    130: ("application.engine_exception", "copy engine CE14 refused the job's transfer"),
    131: ("application.engine_exception", "copy engine CE15 refused the job's transfer"),
    132: ("application.engine_exception", "copy engine CE16 refused the job's transfer"),
    133: ("application.engine_exception", "copy engine CE17 refused the job's transfer"),
    134: ("application.engine_exception", "copy engine CE18 refused the job's transfer"),
    135: ("application.engine_exception", "copy engine CE19 refused the job's transfer"),
    136: ("nvlink.error", "a link did not come up when it was trained"),
    137: ("application.illegal_access", "the job accessed a peer's memory without permission"),
    138: ("gpu.unknown_xid", "reserved by NVIDIA: no meaning is published"),
    139: ("application.engine_exception", "the second optical flow engine refused the job's work"),
    140: ("gpu.ecc_uncorrectable", "an uncorrectable error that could not be tied to a row or a process"),
    141: (
        "application.gpu_exception",
        "a fast path of CUDA failed and was left; the job's library copes or fails",
    ),
    142: ("gpu.inspection_wanted", "a video encoder error for which NVIDIA wants to be asked"),
    143: ("gpu.init_failed", "the GPU did not initialise"),
    144: (
        "nvlink.undecoded",
        "one code for harmless and fatal NVLink events: the word in the line decides, without it a person",
    ),
    145: (
        "nvlink.undecoded",
        "one code for harmless and fatal NVLink events: the word in the line decides, without it a person",
    ),
    146: (
        "nvlink.undecoded",
        "one code for harmless and fatal NVLink events: the word in the line decides, without it a person",
    ),
    147: (
        "nvlink.undecoded",
        "one code for harmless and fatal NVLink events: the word in the line decides, without it a person",
    ),
    148: (
        "nvlink.undecoded",
        "one code for harmless and fatal NVLink events: the word in the line decides, without it a person",
    ),
    149: (
        "nvlink.undecoded",
        "one code for harmless and fatal NVLink events: the word in the line decides, without it a person",
    ),
    150: ("nvlink.error", "the watchdog of the link's management engine fired, which is always fatal"),
    151: (
        "gpu.key_rotation",
        "the encrypted channel to the GPU could not change its key: its machine restarts",
    ),
    152: (
        "application.engine_exception",
        "the deep learning accelerator of an embedded part refused the job's work",
    ),
    153: (
        "application.engine_exception",
        "the deep learning accelerator of an embedded part refused the job's work",
    ),
    154: (
        "gpu.inspection_wanted",
        "the driver's own verdict: its text decides; when the text cannot be read, a person does",
    ),
    155: ("nvlink.error", "the driver took a link down on purpose; it stays down until a reset"),
    156: (
        "gpu.retirement_pending",
        "a part of the GPU is to be retired at the next reset; it works until then",
    ),
    157: (
        "gpu.inspection_wanted",
        "a part of the GPU could not be retired; it may still run, and a repeat is a case for exchange",
    ),
    158: ("gpu.channel_timeout", "a fatal time-out inside the GPU"),
    159: (
        "gpu.inspection_wanted",
        "an error that usually follows another one; what it means depends on whether memory is shared with the CPU",
    ),
    160: ("gpu.event", "a memory channel was retired; the driver has dealt with it"),
    161: (
        "gpu.inspection_wanted",
        "a memory channel could not be retired; computing goes on, a repeat is a case for exchange",
    ),
    162: ("gpu.event", "power smoothing works again; ends what 163 said"),
    163: (
        "power.smoothing_off",
        "the circuit that evens out power draw is off or worn; computing is not affected",
    ),
    164: (
        "power.smoothing_off",
        "the circuit that evens out power draw is off or worn; computing is not affected",
    ),
    165: (
        "power.smoothing_off",
        "the circuit that evens out power draw is off or worn; computing is not affected",
    ),
    166: (
        "gpu.inspection_wanted",
        "an event of confidential computing on NVLink; what follows from it is the tenant's decision",
    ),
    167: (
        "gpu.pcie_fatal",
        "a fatal PCIe time-out: the host's view of the GPU is no longer reliable",
        "NVIDIA gives no action; we take its name at its word and reboot",
    ),
    168: (
        "gpu.reduced_memory",
        "part of the GPU's memory is given up until the next boot",
        "NVIDIA gives no action; a boot lets the driver choose another region, as NVSentinel does",
    ),
    169: (
        "gpu.microcontroller_halt",
        "the security controller halted, like 62",
        "NVIDIA gives no action; we treat it like its sibling 62",
    ),
    170: (
        "gpu.inspection_wanted",
        "an event of confidential computing on NVLink; what follows from it is the tenant's decision",
    ),
    171: (
        "gpu.ecc_uncorrectable",
        "where in DRAM the error of 48 is",
        "NVIDIA calls it a detail of 48; on its own we take it for 48",
    ),
    172: (
        "gpu.ecc_uncorrectable",
        "where in SRAM the error of 48 is",
        "NVIDIA calls it a detail of 48; on its own we take it for 48",
    ),
    173: (
        "gpu.pcie_fatal",
        "the chip-to-chip link to the CPU failed for good",
        "not in NVIDIA's catalogue, only in the driver's header; we take its name at its word and reboot",
    ),
    174: ("application.teardown", "the driver ended a process silently; like 45 it never leads"),
    175: (
        "gpu.gsp_timeout",
        "printed in place of 119 when a memory error made the system processor hang",
        "not in NVIDIA's catalogue; the driver's source prints it where it printed 119",
    ),
    176: ("gpu.event", "corrected PCIe errors: harmless each, a trend to watch"),
}
