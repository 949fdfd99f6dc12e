/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Written by tools/build-bpf.mjs from src/failover/ejection-rules.ts; do not edit. */
#pragma once

#define FAILURE_WINDOW_MS 10000
#define MIN_FAILURE_DISTANCE_MS 50
#define FIRST_EJECTION_MS 5000
#define MAX_EJECTION_MS 300000
#define PROGRAM_PROBE_MS 1000
#define MAX_REROUTES 4
#define PROGRAM_SAMPLE 8
