/** The version of weir: that of `package.json`, which the build takes in. */

import { version } from '../../package.json';

export const VERSION: string = version;
