import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import type { Plugin } from 'vite';

/** Writes `licences.txt`: every package with code in the page, with its licence in full. */
export function licences(): Plugin {
  return {
    name: 'licences',
    apply: 'build',
    generateBundle(_, bundle) {
      const folders = new Set<string>();
      for (const file of Object.values(bundle)) {
        if (file.type !== 'chunk') continue;
        for (const module of Object.keys(file.modules)) {
          const folder = packageOf(module);
          if (folder) folders.add(folder);
        }
      }
      const texts = [...folders].sort().map(licenceOf);
      const source = `The page of Thalweg contains these packages.\n\n${texts.join('\n\n')}\n`;
      this.emitFile({ type: 'asset', fileName: 'licences.txt', source });
    },
  };
}

function packageOf(module: string): string | undefined {
  const path = module.replace(/^\0/, '').split('?')[0] ?? '';
  if (!path.includes('node_modules')) return undefined;
  for (let folder = dirname(path); folder.includes('node_modules'); folder = dirname(folder)) {
    const file = join(folder, 'package.json');
    if (existsSync(file) && JSON.parse(readFileSync(file, 'utf8')).version) return folder;
  }
  return undefined;
}

function licenceOf(folder: string): string {
  const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
  const text = file ? readFileSync(join(folder, file), 'utf8').trim() : `Licence: ${about.license}`;
  const title = `${about.name} ${about.version} (${about.license})`;
  if (!about.license) throw new Error(`${relative('.', folder)} names no licence`);
  return `${title}\n${'='.repeat(title.length)}\n${text}`;
}
