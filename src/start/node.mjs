/**
 * Which versions of Node weir runs on: those of "engines" in package.json. Plain JavaScript that
 * Node 16 can read, and without an import, for everything else is imported after this check.
 */

const RECOMMENDED = 22;
/** The exit code of a server that cannot start; here of every command. */
const CANNOT_START = 5;

/**
 * Where this Node is not supported, says so in one sentence and sets the exit code.
 * @param {string} range as "engines" has it
 */
export function checkNode(range) {
  const { node } = process.versions;
  const isRight = isSupported(node, range);
  if (!isRight) cannotStart(unsupported(node, range));
  return isRight;
}

/** @param {string} sentence */
export function cannotStart(sentence) {
  process.stderr.write(`weir: ${sentence}\n`);
  process.exitCode = CANNOT_START;
}

/**
 * @param {string} version as in 22.22.2
 * @param {string} range of the form ^20.20.2 || ^26
 */
export function isSupported(version, range) {
  const [major, minor, patch] = numbersOf(version);
  return alternativesOf(range).some((least) => {
    if (major !== least[0]) return false;
    return minor > least[1] || (minor === least[1] && patch >= least[2]);
  });
}

/** @param {string} version @param {string} range */
export function unsupported(version, range) {
  const known = alternativesOf(range).map((least) => least.join('.'));
  const last = known.pop();
  return (
    `this is Node ${version}, and weir needs Node ${known.join(', ')} or ${last}, or a later ` +
    `release of one of these major versions; Node ${RECOMMENDED} is recommended`
  );
}

/** @param {string} range */
function alternativesOf(range) {
  return range.split('||').map((alternative) => {
    const [, version] = /^\^(\d+(?:\.\d+){0,2})$/.exec(alternative.trim()) || [];
    if (version === undefined) throw new Error(`"engines" is not understood: ${range}`);
    return numbersOf(version);
  });
}

/** @param {string} version */
function numbersOf(version) {
  const [major, minor = 0, patch = 0] = version.split('.').map((part) => Number.parseInt(part, 10));
  return [major, minor, patch];
}
