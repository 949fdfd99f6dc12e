/**
 * Test files that only `./test all --full` and their own parts run: everything of theirs is also proved by another file, in
 * another mode or in a smaller scene. Each has the reason.
 */
export const FULL_FILES: Readonly<Record<string, string>> = {
  'tests/explain.matrix.test.ts':
    'explain.netns.test.ts has every question; the check of tests/promise/iptables compares explain with 1,400 packets',
  'tests/explain.matrix.vm.test.ts':
    'explain.netns.test.ts has every question; the check of ipvs-cluster.vm.test.ts compares explain with 1,400 packets',
  'tests/faults-ipvs.vm.test.ts':
    'faults.netns.test.ts has every fault in another mode; ipvs-cluster.vm and trace-ipvs.vm compare explain and trace with packets',
  'tests/ui-walk.matrix.test.ts':
    'a tour for its pictures; ui, ui-path, ui-modes, ui-shell and ui-lessons have its stations',
};
