import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Container, Pod } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { KubeletError } from './kubelet-error.ts';

// linux/sched.h: the kinds of namespaces.
const NAMESPACE_FLAGS = [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000];
const EPERM = 1;
const ENOSYS = 38;
const AF_VSOCK = 40;

/** System calls that need a capability: denied to containers without it. */
const BY_CAPABILITY: Readonly<Record<string, string>> = {
  CAP_SYS_ADMIN:
    'bpf fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount open_tree ' +
    'perf_event_open pivot_root quotactl quotactl_fd setdomainname sethostname setns umount2 unshare',
  CAP_DAC_READ_SEARCH: 'open_by_handle_at',
  CAP_SYS_BOOT: 'kexec_file_load kexec_load reboot',
  CAP_SYS_MODULE: 'delete_module finit_module init_module',
  CAP_SYS_NICE: 'get_mempolicy mbind migrate_pages move_pages set_mempolicy set_mempolicy_home_node',
  CAP_SYS_PACCT: 'acct',
  CAP_SYS_PTRACE: 'kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev',
  CAP_SYS_RAWIO: process.arch === 'x64' ? 'ioperm iopl' : '',
  CAP_SYS_TIME: 'clock_adjtime clock_settime settimeofday',
};
/** Denied to all: kernel keys are not namespaced, and the others have allowed container escapes. */
const NEVER =
  'add_key io_uring_enter io_uring_register io_uring_setup keyctl request_key swapoff swapon userfaultfd';

/**
 * Returns the system call filter of a container's seccompProfile, for the OCI runtime. RuntimeDefault: denies the calls
 * that other runtimes' defaults deny, allows all others. Localhost: a file below `folder`, in the format of the
 * runtime-spec. Returns null for no filter. Throws KubeletError.
 */
export function seccompFilter(
  pod: Pod,
  container: Container,
  capabilities: readonly string[],
  folder: string,
): object | null {
  const { privileged, seccompProfile } = container.securityContext ?? {};
  const profile = seccompProfile ?? pod.spec?.securityContext?.seccompProfile;
  if (privileged) return null;
  if (profile?.type === 'Localhost') return readProfile(folder, profile.localhostProfile ?? '');
  if (profile?.type !== 'RuntimeDefault') return null;
  const held = new Set(capabilities);
  const refused = Object.entries(BY_CAPABILITY).flatMap(([capability, calls]) =>
    held.has(capability) ? [] : calls.split(' '),
  );
  const refuse = (names: readonly string[], errnoRet: number, more: object = {}) => {
    return { names, action: 'SCMP_ACT_ERRNO', errnoRet, ...more };
  };
  const given = (index: number, value: number, op: string, valueTwo?: number) => {
    return { args: [{ index, value, op, ...(valueTwo === undefined ? {} : { valueTwo }) }] };
  };
  return {
    defaultAction: 'SCMP_ACT_ALLOW',
    architectures:
      process.arch === 'x64' ? ['SCMP_ARCH_X86_64', 'SCMP_ARCH_X86', 'SCMP_ARCH_X32'] : ['SCMP_ARCH_AARCH64'],
    syscalls: [
      refuse([...refused.filter(Boolean), ...NEVER.split(' ')], EPERM),
      refuse(['socket'], EPERM, given(0, AF_VSOCK, 'SCMP_CMP_EQ')),
      ...(held.has('CAP_SYS_ADMIN')
        ? []
        : [
            // The flags of clone3 are in memory, where a filter cannot read them: without clone3, libraries use clone.
            refuse(['clone3'], ENOSYS),
            ...NAMESPACE_FLAGS.map((flag) =>
              refuse(['clone'], EPERM, given(0, flag, 'SCMP_CMP_MASKED_EQ', flag)),
            ),
          ]),
    ],
  };
}

function readProfile(folder: string, name: string): object {
  const problem = (why: string, cause?: unknown) =>
    new KubeletError('CreateContainerConfigError', `seccomp profile ${JSON.stringify(name)}: ${why}`, {
      op: 'read seccomp profile',
      hint: `profiles of this node are files below ${folder}`,
      cause,
    });
  if (name === '' || name.startsWith('/') || name.split('/').includes('..'))
    throw problem('not a relative path');
  try {
    const profile: unknown = JSON.parse(readFileSync(join(folder, name), 'utf8'));
    if (typeof profile === 'object' && profile !== null && 'defaultAction' in profile) return profile;
  } catch (error) {
    throw problem(messageOf(error), error);
  }
  throw problem('it has no defaultAction');
}
