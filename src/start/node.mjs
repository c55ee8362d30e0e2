/**
 * The Node versions that weir supports: those of "engines" in package.json. It is plain JavaScript
 * that Node 16 can parse, and has no imports, because this check runs before all other code.
 */

const RECOMMENDED = 22;
/** EXIT.CANNOT_SERVE of `exit.ts`, here for every command. */
const CANNOT_START = 5;

/**
 * Prints one sentence and sets the exit code where this Node is not supported.
 * @param {string} range the value of "engines"
 */
export function checkNode(range) {
  const { node } = process.versions;
  const isUsable = isSupported(node, range);
  if (!isUsable) cannotStart(unsupported(node, range));
  return isUsable;
}

/** @param {string} sentence */
export function cannotStart(sentence) {
  process.stderr.write(`weir: ${sentence}\n`);
  process.exitCode = CANNOT_START;
}

/**
 * @param {string} version such as 22.22.2
 * @param {string} range of the form ^20.20.2 || ^26
 */
export function isSupported(version, range) {
  const [major, minor, patch] = numbersOf(version);
  return alternativesOf(range).some((minimum) => {
    if (major !== minimum[0]) return false;
    return minor > minimum[1] || (minor === minimum[1] && patch >= minimum[2]);
  });
}

/** @param {string} version @param {string} range */
export function unsupported(version, range) {
  const minimums = alternativesOf(range).map((minimum) => minimum.join('.'));
  const last = minimums.pop();
  return (
    `this is Node ${version}, and weir needs Node ${minimums.join(', ')} or ${last}, or a later ` +
    `release of one of these major versions; Node ${RECOMMENDED} is recommended`
  );
}

/** @param {string} range */
function alternativesOf(range) {
  return range.split('||').map((alternative) => {
    const [, version] = /^\^(\d+(?:\.\d+){0,2})$/.exec(alternative.trim()) || [];
    if (version === undefined)
      throw new Error(`"engines" must be of the form ^20.20.2 || ^26; got ${range}`);
    return numbersOf(version);
  });
}

/** @param {string} version */
function numbersOf(version) {
  const [major, minor = 0, patch = 0] = version.split('.').map((part) => Number.parseInt(part, 10));
  return [major, minor, patch];
}
