import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';
import { licences } from './licences.ts';

// Files have the same names in each version, because the server lists them (crates/server/src/http/page.rs)
// and a browser asks by ETag whether one has changed.
export default defineConfig({
  base: './',
  plugins: [svelte(), licences()],
  build: {
    outDir: '../crates/server/page',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rollupOptions: {
      output: {
        entryFileNames: 'app.js',
        chunkFileNames: '[name].js',
        assetFileNames: (asset) => (asset.names[0]?.endsWith('.css') ? 'app.css' : '[name][extname]'),
      },
    },
  },
  server: {
    // The server refuses requests whose `Origin` is another host than they are for.
    proxy: { '/v1': { target: process.env.THALWEG_SERVER ?? 'http://127.0.0.1:7373', changeOrigin: false } },
  },
  test: { include: ['tests/unit/**/*.test.ts'] },
});
