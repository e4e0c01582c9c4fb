//! Parts built from an edited copy of their source, for changes without a setting.

use std::fs;
use std::path::Path;

use super::{Part, Parts, PartsError, digest, file, module_version, read};

/// One change of a source file.
#[derive(Clone, Copy, Debug)]
pub struct SourceEdit {
    /// The file, in the module's folder.
    pub file: &'static str,
    /// The text to replace: it must be there exactly once.
    pub from: &'static str,
    /// The replacement.
    pub to: &'static str,
}

impl Parts {
    /// As [`Parts::binary`], from a copy of the part's source with these changes. Without any it is the part itself.
    ///
    /// # Errors
    /// As [`Parts::binary`], and when a file does not say what is to be replaced.
    pub fn edited(
        &self,
        part: Part,
        edits: &[SourceEdit],
    ) -> Result<std::path::PathBuf, PartsError> {
        if edits.is_empty() {
            return self.binary(part);
        }
        let module = self.module(part)?;
        let (go_mod, go_sum) = (read(&module.join("go.mod"))?, read(&module.join("go.sum"))?);
        let go_version = self.go.check(&module, &go_mod)?;
        let version = module_version(&go_mod, part.source())?;
        let (package, ldflags) = (part.package(), part.ldflags(&version));
        let settings = format!("CGO_ENABLED={} -trimpath", part.cgo());
        let mut key = vec![&*go_mod, &*go_sum, &*go_version, &*package, &*ldflags, &*settings];
        key.extend(edits.iter().flat_map(|edit| [edit.file, edit.from, edit.to]));
        let dir = self.cache.join(format!("{}-edited-{}", part.name(), digest(&key)));
        let binary = dir.join(part.name());
        if binary.is_file() {
            return Ok(binary);
        }
        fs::create_dir_all(&dir).map_err(file("create", &dir))?;
        let _lock = self.lock(part)?;
        if binary.is_file() {
            return Ok(binary);
        }
        let source = dir.join("source");
        copy(&self.own_source_dir(part)?, &source)?;
        for edit in edits {
            edit.apply(&source)?;
        }
        let copied = dir.join("module");
        fs::create_dir_all(&copied).map_err(file("create", &copied))?;
        let replaced = format!("{go_mod}\nreplace {} => {}\n", part.source(), source.display());
        for (name, text) in [("go.mod", &replaced), ("go.sum", &go_sum)] {
            let path = copied.join(name);
            fs::write(&path, text).map_err(file("write", &path))?;
        }
        let unfinished = dir.join(format!("{}.unfinished", part.name()));
        self.build(part, &format!("{version}, edited"), &copied, &ldflags, &unfinished)?;
        let _ = fs::remove_dir_all(&source);
        fs::rename(&unfinished, &binary).map_err(file("rename", &unfinished))?;
        Ok(binary)
    }
}

impl SourceEdit {
    fn apply(&self, source: &Path) -> Result<(), PartsError> {
        let path = source.join(self.file);
        let text = read(&path)?;
        if text.matches(self.from).count() != 1 {
            let problem = format!(
                "{} does not say exactly once {:?}; mend the edit of it",
                path.display(),
                self.from
            );
            return Err(PartsError::Module(problem));
        }
        fs::write(&path, text.replace(self.from, self.to)).map_err(file("write", &path))
    }
}

/// Copies a folder, its files writable: those of Go's module cache are not.
fn copy(from: &Path, to: &Path) -> Result<(), PartsError> {
    fs::create_dir_all(to).map_err(file("create", to))?;
    for entry in fs::read_dir(from).map_err(file("read", from))? {
        let entry = entry.map_err(file("read", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target)?;
        } else {
            let content = fs::read(&source).map_err(file("read", &source))?;
            fs::write(&target, content).map_err(file("write", &target))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_applies_exactly_once() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from/pkg"), dir.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("a.go"), "one two two").unwrap();
        copy(from.parent().unwrap(), &to).unwrap();
        let edit = |from| SourceEdit { file: "pkg/a.go", from, to: "1" };
        edit("one").apply(&to).unwrap();
        assert_eq!(fs::read_to_string(to.join("pkg/a.go")).unwrap(), "1 two two");
        for wrong in ["two", "three"] {
            assert!(edit(wrong).apply(&to).unwrap_err().to_string().contains("exactly once"));
        }
    }
}
