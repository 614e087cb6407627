// SPDX-License-Identifier: GPL-2.0

//! A file in debugfs that lists records.
//!
//! `kernel::debugfs` does not fit a module: its file operations name no owner, so the module could
//! be unloaded while a file is open, and closing that would use memory which is gone. Besides, its
//! files keep whoever removes them waiting for a reader, who may be waiting for memory of its own
//! process.
//!
//! Here nobody waits for a reader. A record is looked up by number each time, and formatted into
//! memory of the file, before any of it is copied to the reader; an open file keeps the module.
//!
//! C headers: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h),
//! [`include/linux/seq_file.h`](srctree/include/linux/seq_file.h)

use crate::bindings;
use core::marker::PhantomData;
use kernel::{
    ffi,
    module::this_module,
    prelude::*,
    seq_file::SeqFile, //
};

/// Records with numbers, which come and go at any time.
#[vtable]
pub trait Records: 'static {
    /// Returns the lowest number of a record that is above `number`. May sleep.
    fn after(number: u32) -> Option<u32>;

    /// Prints a record, or nothing if it is gone. May sleep.
    fn show(number: u32, out: &SeqFile);
}

/// A directory with a file or more, readable for root. Without debugfs it is nothing.
///
/// # Invariants
///
/// `dir` is null, an error pointer, or a directory of debugfs that this value owns.
pub struct Listing<R: Records> {
    #[cfg(CONFIG_DEBUG_FS)]
    dir: *mut bindings::dentry,
    _p: PhantomData<R>,
}

// SAFETY: What is done with the directory is safe in any thread.
unsafe impl<R: Records> Send for Listing<R> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<R: Records> Sync for Listing<R> {}

impl<R: Records> Listing<R> {
    /// Makes the directory and the file. May sleep. A failure is ignored, as everywhere in debugfs:
    /// nothing depends on it.
    pub fn new(dir: &'static CStr, file: &'static CStr) -> Self {
        #[cfg(CONFIG_DEBUG_FS)]
        {
            // SAFETY: The name is a C string, and a null parent stands for the root.
            let dir =
                unsafe { bindings::debugfs_create_dir(dir.as_char_ptr(), core::ptr::null_mut()) };
            // INVARIANT: Just made, or an error.
            let this = Self {
                dir,
                _p: PhantomData,
            };
            this.with::<R>(file)
        }
        #[cfg(not(CONFIG_DEBUG_FS))]
        {
            let _ = (dir, file);
            Self { _p: PhantomData }
        }
    }

    /// Makes another file in the directory. May sleep.
    pub fn with<S: Records>(self, file: &'static CStr) -> Self {
        // SAFETY: The name is a C string; an error pointer as parent is allowed, and makes another
        // one. The operations need no protection from the removal of the file: they use nothing
        // that goes with it, and as long as it is open there is the module.
        #[cfg(CONFIG_DEBUG_FS)]
        unsafe {
            bindings::debugfs_create_file_unsafe(
                file.as_char_ptr(),
                0o400,
                self.dir,
                core::ptr::null_mut(),
                &Table::<S>::FILE,
            )
        };
        #[cfg(not(CONFIG_DEBUG_FS))]
        let _ = file;
        self
    }
}

impl<R: Records> Drop for Listing<R> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; null and error pointers are ignored.
        #[cfg(CONFIG_DEBUG_FS)]
        unsafe {
            bindings::debugfs_remove(self.dir)
        };
    }
}

/// The tables for C.
#[cfg_attr(not(CONFIG_DEBUG_FS), allow(dead_code))]
struct Table<R: Records>(PhantomData<R>);

#[cfg_attr(not(CONFIG_DEBUG_FS), allow(dead_code))]
impl<R: Records> Table<R> {
    const FILE: bindings::file_operations = bindings::file_operations {
        owner: this_module::<R::OwnerModule>().as_ptr(),
        open: Some(Self::open),
        read: Some(bindings::seq_read),
        llseek: Some(bindings::seq_lseek),
        release: Some(bindings::seq_release),
        ..pin_init::zeroed()
    };

    const SEQUENCE: bindings::seq_operations = bindings::seq_operations {
        start: Some(Self::start),
        stop: Some(Self::stop),
        next: Some(Self::next),
        show: Some(Self::show),
    };

    /// `file_operations.open`.
    ///
    /// # Safety
    ///
    /// Only for the VFS.
    unsafe extern "C" fn open(
        _inode: *mut bindings::inode,
        file: *mut bindings::file,
    ) -> ffi::c_int {
        // SAFETY: The file is being opened, and the table is static.
        unsafe { bindings::seq_open(file, &Self::SEQUENCE) }
    }

    /// `seq_operations.start`: the position is the lowest number that is not behind the reader. The
    /// token of a record is its number as a pointer, which is not null, since zero is none.
    ///
    /// # Safety
    ///
    /// Only for a sequence file, with a position valid for write.
    unsafe extern "C" fn start(
        _seq: *mut bindings::seq_file,
        pos: *mut bindings::loff_t,
    ) -> *mut ffi::c_void {
        // SAFETY: The position is valid.
        let from = unsafe { *pos };
        let after = from.saturating_sub(1).max(0);
        let found = u32::try_from(after).ok().and_then(R::after);
        // SAFETY: As above.
        unsafe { *pos = found.map_or(from, i64::from) };
        // CAST: Widening.
        core::ptr::without_provenance_mut(found.unwrap_or(0) as usize)
    }

    /// `seq_operations.next`.
    ///
    /// # Safety
    ///
    /// As [`start`](Self::start).
    unsafe extern "C" fn next(
        seq: *mut bindings::seq_file,
        _token: *mut ffi::c_void,
        pos: *mut bindings::loff_t,
    ) -> *mut ffi::c_void {
        // SAFETY: By the requirement of this function.
        unsafe {
            *pos = (*pos).saturating_add(1);
            Self::start(seq, pos)
        }
    }

    /// `seq_operations.stop`: nothing is held.
    ///
    /// # Safety
    ///
    /// None.
    unsafe extern "C" fn stop(_seq: *mut bindings::seq_file, _token: *mut ffi::c_void) {}

    /// `seq_operations.show`.
    ///
    /// # Safety
    ///
    /// Only for a sequence file, with a token of [`start`](Self::start).
    unsafe extern "C" fn show(seq: *mut bindings::seq_file, token: *mut ffi::c_void) -> ffi::c_int {
        // SAFETY: The file is valid, and under its lock, for the call.
        let out = unsafe { SeqFile::from_raw(seq) };
        // CAST: The token is a number of 32 bits.
        R::show(token.addr() as u32, out);
        0
    }
}
