// SPDX-License-Identifier: GPL-2.0

#include <rdma/ib_umem.h>

__rust_helper struct ib_umem *
rust_helper_ib_umem_get_va(struct ib_device *device, unsigned long addr,
			   size_t size, int access)
{
	return ib_umem_get_va(device, addr, size, access);
}

__rust_helper size_t rust_helper_ib_umem_num_pages(struct ib_umem *umem)
{
	return ib_umem_num_pages(umem);
}

__rust_helper int rust_helper_ib_umem_offset(struct ib_umem *umem)
{
	return ib_umem_offset(umem);
}

__rust_helper struct page *
rust_helper_sg_page_iter_page(struct sg_page_iter *piter)
{
	return sg_page_iter_page(piter);
}
